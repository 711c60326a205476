//! Where places are kept: in this process's memory, in a shared store, or with you.

use crate::backend::{Step, Undecided};
use crate::key::RequestKey;
use sluicegate::{AcquireLease, Decision, Grant, Lease, Refusal, Semaphore};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// What a [`crate::ConcurrencyLayer`] asks for places. [`sluicegate::Semaphore`] is one and, with the feature `redis`,
/// `sluicegate_redis::RedisSemaphore`.
///
/// Clones must be the same: a layer makes one for each route, and all of them share the places.
pub trait Places: Clone + Send + Sync + 'static {
    /// A place that is returned when it is dropped.
    type Lease: Send + 'static;
    /// An answer that is not there at once. Dropping it leaves the line.
    type Asking: Future<Output = Result<Granted<Self::Lease>, Undecided>> + Send + 'static;

    /// Asks for so many places, and waits for them if there is a `max_wait`.
    fn ask(&self, key: &RequestKey<'_>, cost: u32, max_wait: Option<Duration>) -> Step<Self::Asking>;
}

/// What came of asking.
#[derive(Debug)]
pub struct Granted<L> {
    /// The decision.
    pub decision: Decision,
    /// Why there is no place, if there is none.
    pub refusal: Option<Refusal>,
    /// The place. `None` if it was refused, or cost nothing.
    pub lease: Option<L>,
}

impl From<Grant> for Granted<Lease> {
    #[inline]
    fn from(grant: Grant) -> Granted<Lease> {
        Granted { decision: grant.decision(), refusal: grant.refusal(), lease: grant.lease() }
    }
}

impl Places for Semaphore {
    type Lease = Lease;
    type Asking = MemoryAsking;

    #[inline]
    fn ask(&self, key: &RequestKey<'_>, cost: u32, max_wait: Option<Duration>) -> Step<MemoryAsking> {
        let Some(max_wait) = max_wait else { return Step::Now(Ok(self.try_acquire(key, cost).into())) };
        let mut acquire = self.acquire_within(key, cost, max_wait);
        match acquire.at_once() {
            Some(grant) => Step::Now(Ok(grant.into())),
            None => Step::Later(MemoryAsking(acquire)),
        }
    }
}

/// A request in line for a place in memory.
#[derive(Debug)]
pub struct MemoryAsking(AcquireLease);

impl Future for MemoryAsking {
    type Output = Result<Granted<Lease>, Undecided>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|grant| Ok(grant.into()))
    }
}
