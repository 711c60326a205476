//! How grants of a shared store are made: what a call waited includes its round trips.

use super::lease::RedisLease;
use sluicegate::backend::Answer;
use sluicegate::semaphore::Grant;
use sluicegate::wait::{Acquired, Denial};
use tokio::time::Instant;

/// A lease, or an allowed call that needs none.
pub(super) fn granted(answer: Answer, lease: Option<RedisLease>, began: Instant) -> Grant<RedisLease> {
    Grant::new(Acquired::new(answer, began.elapsed().into(), None), lease)
}

/// A call that did not wait: a denial, or an allowed call that needs no lease.
pub(super) fn without_lease(answer: Answer, began: Instant) -> Grant<RedisLease> {
    Grant::new(Acquired::at_once(answer, began.elapsed().into()), None)
}

/// A call that waited and got no lease.
pub(super) fn denied(denial: Denial, answer: Answer, began: Instant) -> Grant<RedisLease> {
    Grant::new(Acquired::new(answer, began.elapsed().into(), Some(denial)), None)
}
