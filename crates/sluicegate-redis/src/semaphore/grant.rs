//! Builds the grants of a shared store. The wait that they report includes the round trips.

use super::lease::RedisLease;
use sluicegate::backend::Answer;
use sluicegate::semaphore::Grant;
use sluicegate::wait::{Acquired, Denial};
use tokio::time::Instant;

/// A granted lease, or an allowed call that needs none.
pub(super) fn granted(answer: Answer, lease: Option<RedisLease>, began: Instant) -> Grant<RedisLease> {
    Grant::new(Acquired::new(answer, began.elapsed().into(), None), lease)
}

/// The answer to a call that did not wait: a denial, or an allowed call that needs no lease.
pub(super) fn without_lease(answer: Answer, began: Instant) -> Grant<RedisLease> {
    Grant::new(Acquired::at_once(answer, began.elapsed().into()), None)
}

/// The denial of a call that waited.
pub(super) fn denied(denial: Denial, answer: Answer, began: Instant) -> Grant<RedisLease> {
    Grant::new(Acquired::new(answer, began.elapsed().into(), Some(denial)), None)
}
