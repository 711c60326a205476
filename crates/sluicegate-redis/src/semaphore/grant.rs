//! What came of asking for a lease.

use super::lease::SharedLease;
use super::told::Told;
use crate::answer::{Answer, Source};
use sluicegate::{Decision, Refusal, RetryAfter};
use std::time::Duration;
use tokio::time::Instant;

/// A lease, or why there is none: a denial is a value. Dropped, it returns the lease.
#[derive(Debug)]
#[must_use = "a call that was not granted must not happen: ask `allowed()` or take the `lease()`"]
pub struct SharedGrant {
    answer: Answer,
    waited: Duration,
    refusal: Option<Refusal>,
    lease: Option<SharedLease>,
}

impl SharedGrant {
    /// The lease was taken.
    pub(super) fn taken(told: &Told, lease: SharedLease, began: Instant) -> SharedGrant {
        let answer = Answer::new(told.decision, Source::Store);
        SharedGrant { answer, waited: began.elapsed(), refusal: None, lease: Some(lease) }
    }

    /// The lease was taken in this process's memory.
    pub(super) fn taken_locally(answer: Answer, lease: Option<SharedLease>, began: Instant) -> SharedGrant {
        SharedGrant { answer, waited: began.elapsed(), refusal: None, lease }
    }

    /// An answer to one who did not wait: a denial, or a grant that needs no lease.
    pub(super) fn without_lease(answer: Answer, began: Instant) -> SharedGrant {
        let refusal = match answer.retry_after() {
            None => None,
            Some(RetryAfter::After(_)) => Some(Refusal::TooLong),
            Some(RetryAfter::Never) => Some(Refusal::Never),
        };
        SharedGrant { answer, waited: began.elapsed(), refusal, lease: None }
    }

    /// No lease came of waiting.
    pub(super) fn refused(refusal: Refusal, answer: Answer, began: Instant) -> SharedGrant {
        SharedGrant { answer, waited: began.elapsed(), refusal: Some(refusal), lease: None }
    }

    /// The same answer to one who would have waited, if there were not too many already.
    pub(super) fn with_a_full_line(mut self) -> SharedGrant {
        if self.refusal == Some(Refusal::TooLong) {
            self.refusal = Some(Refusal::LineFull);
        }
        self
    }

    /// Whether the caller may act.
    pub fn allowed(&self) -> bool {
        self.refusal.is_none()
    }

    /// The decision.
    pub fn decision(&self) -> Decision {
        self.answer.decision()
    }

    /// The decision, and who made it.
    pub fn answer(&self) -> Answer {
        self.answer
    }

    /// Who made it.
    pub fn source(&self) -> Source {
        self.answer.source()
    }

    /// How long it took, the trips to the store included.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Why there is no lease: for one who did not wait, [`Refusal::TooLong`] is that there was no place. `None` when it is allowed.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// The lease. There is none when it was refused, or cost nothing, or was allowed by nobody as the store is away.
    pub fn lease(self) -> Option<SharedLease> {
        self.lease
    }
}
