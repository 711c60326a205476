//! What came of asking for a lease.

use super::lease::Lease;
use crate::answer::{Answer, Source};
use crate::wait::{Acquired, Refusal};
use sluicegate_core::{Decision, RetryAfter, Span};
use std::time::Duration;

/// The answer to whoever asked for a lease. If it was allowed it holds the lease: dropping it returns that at once, so take it out with
/// [`Grant::lease`] and keep it for as long as the work goes on.
///
/// ```
/// use sluicegate::{Refusal, Semaphore};
///
/// let exports = Semaphore::new("concurrency 1")?;
/// let grant = exports.try_acquire("Harry", 1);
/// assert!(grant.allowed());
/// let at_work = grant.lease();
/// assert_eq!(exports.try_acquire("Harry", 1).refusal(), Some(Refusal::TooLong)); // it would have to wait
/// drop(at_work);
/// assert!(exports.try_acquire("Harry", 1).allowed());
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[must_use = "a call that was refused must not happen, and a lease that is dropped is returned: ask `allowed()`, keep `lease()`"]
#[derive(Debug)]
pub struct Grant {
    decision: Decision,
    waited: Span,
    refusal: Option<Refusal>,
    lease: Option<Lease>,
}

impl Grant {
    #[inline]
    pub(super) fn of(decision: Decision, waited: Span, lease: Option<Lease>) -> Grant {
        Grant { decision, waited, refusal: None, lease }
    }

    pub(super) fn refused(refusal: Refusal, decision: Decision, waited: Span) -> Grant {
        Grant { decision, waited, refusal: Some(refusal), lease: None }
    }

    /// The answer to somebody who does not wait.
    pub(super) fn denied(decision: Decision) -> Grant {
        let refusal = match decision.retry_after() {
            Some(RetryAfter::Never) => Refusal::Never,
            _ => Refusal::TooLong,
        };
        Grant::refused(refusal, decision, Span::ZERO)
    }

    /// The answer without the lease.
    #[inline]
    pub(crate) fn acquired(&self, source: Source) -> Acquired {
        Acquired::new(Answer::new(self.decision, source), self.waited, self.refusal)
    }

    /// Whether there is room, and it was taken.
    pub fn allowed(&self) -> bool {
        self.refusal.is_none()
    }

    /// The whole answer. Denied, its `retry_after` is how long until enough leases have lapsed if none is returned before:
    /// without ttl, or behind others in line, nobody knows that better than [`crate::core::concurrency::UNKNOWN`] or the soonest
    /// moment at which it is worth asking.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// How long it waited.
    pub fn waited(&self) -> Duration {
        self.waited.into()
    }

    /// Why it was refused. To somebody who does not wait, a turn that does not come at once is [`Refusal::TooLong`].
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// The lease. `None` if it was refused, or cost nothing.
    #[must_use = "a lease that is dropped is returned"]
    pub fn lease(self) -> Option<Lease> {
        self.lease
    }
}
