//! The answer to a request for a lease.

use super::lease::RedisLease;
use sluicegate::{Acquired, Answer, Decision, Refusal, RetryAfter, Source};
use std::time::Duration;
use tokio::time::Instant;

/// A lease, or why there is none: a denial is a value. Dropped, it releases the lease.
#[derive(Debug)]
#[must_use = "a call that was not granted must not happen: ask `allowed()` or take the `lease()`"]
pub struct RedisGrant {
    pub(crate) acquired: Acquired,
    pub(crate) lease: Option<RedisLease>,
}

impl RedisGrant {
    /// A lease, or an allowed call that needs none.
    pub(super) fn granted(answer: Answer, lease: Option<RedisLease>, began: Instant) -> RedisGrant {
        RedisGrant { acquired: Acquired::new(answer, began.elapsed().into(), None), lease }
    }

    /// The answer to a call that did not wait: a denial, or a grant that needs no lease.
    pub(super) fn without_lease(answer: Answer, began: Instant) -> RedisGrant {
        let refusal = answer.retry_after().map(|retry_after| match retry_after {
            RetryAfter::After(_) => Refusal::TooLong,
            RetryAfter::Never => Refusal::Never,
        });
        RedisGrant { acquired: Acquired::new(answer, began.elapsed().into(), refusal), lease: None }
    }

    /// The answer to a call that waited for nothing.
    pub(super) fn refused(refusal: Refusal, answer: Answer, began: Instant) -> RedisGrant {
        RedisGrant { acquired: Acquired::new(answer, began.elapsed().into(), Some(refusal)), lease: None }
    }

    /// The same answer to a call that would have waited, if its queue were not full.
    pub(super) fn with_a_full_queue(self, began: Instant) -> RedisGrant {
        if self.refusal() == Some(Refusal::TooLong) {
            return RedisGrant::refused(Refusal::LineFull, self.answer(), began);
        }
        self
    }

    /// Returns `true` if the caller may act.
    pub fn allowed(&self) -> bool {
        self.acquired.allowed()
    }

    /// The decision.
    pub fn decision(&self) -> Decision {
        self.acquired.decision()
    }

    /// The decision and its source.
    pub fn answer(&self) -> Answer {
        self.acquired.answer()
    }

    /// Where the decision was made.
    pub fn source(&self) -> Source {
        self.acquired.source()
    }

    /// How long it took, the round trips included.
    pub fn waited(&self) -> Duration {
        self.acquired.waited()
    }

    /// Why there is no lease: to a call that did not wait, [`Refusal::TooLong`] says that no permit was free. `None` if it is
    /// allowed.
    pub fn refusal(&self) -> Option<Refusal> {
        self.acquired.refusal()
    }

    /// The lease. `None` if the call was refused, cost nothing, or was allowed without the store.
    pub fn lease(self) -> Option<RedisLease> {
        self.lease
    }
}
