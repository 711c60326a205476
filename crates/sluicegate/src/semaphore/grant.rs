//! The result of acquiring a lease, from any backend.

use super::lease::Lease;
use crate::answer::{Answer, Source};
use crate::wait::{Acquired, Denial};
use sluicegate_core::Decision;
use std::time::Duration;

/// A lease, or why there is none. Dropping a grant releases its lease: take it out with
/// [`Grant::lease`] and keep it until the work is done.
///
/// ```
/// use sluicegate::semaphore::Semaphore;
/// use sluicegate::wait::Denial;
///
/// let exports = Semaphore::new("concurrency 1")?;
/// let lease = exports.try_acquire("user:42", 1).lease();
/// assert!(lease.is_some());
/// assert_eq!(exports.try_acquire("user:42", 1).denial(), Some(Denial::TooLong)); // it does not wait
/// drop(lease);
/// assert!(exports.try_acquire("user:42", 1).allowed());
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// `L` is the backend's lease: [`Lease`] in memory, `RedisLease` in a shared store.
#[must_use = "a denied call must not happen, and dropping a lease releases it: check `allowed()`, keep `lease()`"]
#[derive(Debug)]
pub struct Grant<L = Lease> {
    acquired: Acquired,
    lease: Option<L>,
}

impl<L> Grant<L> {
    /// A grant. `lease` is `None` if the call was denied, cost nothing, or was allowed by a
    /// fallback.
    #[inline]
    pub fn new(acquired: Acquired, lease: Option<L>) -> Grant<L> {
        Grant { acquired, lease }
    }

    /// Returns `true` if the call may happen.
    #[inline]
    pub fn allowed(&self) -> bool {
        self.acquired.allowed()
    }

    /// The decision. If denied, its `retry_after` is how long until enough leases have expired,
    /// assuming that none is released before. Without a `ttl`, and behind other waiters, that is
    /// not known: then it is the shortest wait after which a retry is worthwhile.
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

    /// How long the call waited, round trips to a shared store included.
    pub fn waited(&self) -> Duration {
        self.acquired.waited()
    }

    /// Why the call was denied. If it does not wait, [`Denial::TooLong`] means that too few permits
    /// were free.
    pub fn denial(&self) -> Option<Denial> {
        self.acquired.denial()
    }

    /// The lease. `None` if the call was denied, cost nothing, or was allowed by a fallback.
    #[must_use = "dropping a lease releases it"]
    pub fn lease(self) -> Option<L> {
        self.lease
    }

    /// The answer and the lease.
    #[inline]
    #[must_use = "dropping a lease releases it"]
    pub fn into_parts(self) -> (Acquired, Option<L>) {
        (self.acquired, self.lease)
    }
}
