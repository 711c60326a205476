//! The interface between callers and the stores that decide.
//!
//! A [`Backend`] is a limiter in some store: [`Limiter`](crate::Limiter) in this process's memory,
//! or `sluicegate_redis::RedisLimiter` in a store that several processes share. A [`LeaseBackend`]
//! is the equivalent for `concurrency` limits. The server, the tower layers and the conformance
//! suite use these two traits and receive one [`Answer`]; which store decides is chosen where the
//! limiter is built. (Only the server's checks bypass them: they call `Limiter`, which needs no
//! dynamic dispatch, and `sluicegate_redis::check_each`, where several calls share a round trip.)
//!
//! ```text
//! server, tower layers, tests ──▶ Backend, LeaseBackend ──┬──▶ memory: Pending::Ready
//!                                                         └──▶ Redis:  Pending::Later
//! ```
//!
//! Application code calls the methods of `Limiter` and `RedisLimiter` directly: they accept keys of
//! any type and have a variant for each default. Code that runs on either takes a `&dyn Backend`.
//! The traits are object-safe, and a [`Pending`] shows whether the result is ready: memory answers
//! without allocating or polling.

mod memory;
mod pending;

pub use crate::answer::{Answer, Source};
pub use crate::store_failure::StoreFailure;
pub use pending::{Pending, PendingFuture};

use crate::ids::{LeaseId, Receipt};
use crate::key::Key;
use crate::limit::Limit;
use crate::limiter::{ReserveOptions, VerbError};
use crate::semaphore::{Grant, Lease};
use crate::wait::Acquired;
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Decision, Time, Usage};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A limiter in some store.
///
/// `at` is the time of the call; `None` means the backend's own clock: the process's for memory,
/// the store's for a shared one. Every method has the meaning of the [`Limiter`](crate::Limiter)
/// method with its name. A denial is an answer; an error means that there is no answer.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Decides a call, and charges it if it is allowed.
    fn check(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Pending<Result<Answer, BackendError>>;

    /// Charges a call that is to happen after the answer's delay, which is at most `max_wait`.
    fn check_within(
        &self,
        key: &dyn Key,
        cost: u64,
        max_wait: Duration,
        at: Option<Time>,
    ) -> Pending<Result<Answer, BackendError>>;

    /// Decides a call without charging it.
    fn peek(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Pending<Result<Answer, BackendError>>;

    /// Charges `up_to`, or as much of it as remains. Returns how much was charged.
    fn take(
        &self,
        key: &dyn Key,
        up_to: u64,
        at: Option<Time>,
    ) -> Pending<Result<(Answer, u64), BackendError>>;

    /// Returns cost to a key. The answer is the decision for cost 0.
    fn refund(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Pending<Result<Answer, BackendError>>;

    /// Charges a call as [`Backend::check_within`] does, with a receipt.
    fn reserve(
        &self,
        key: &dyn Key,
        cost: u64,
        options: &ReserveOptions,
        at: Option<Time>,
    ) -> Pending<Result<Reserved, BackendError>>;

    /// Charges more to an open receipt, and restarts its time to live, if there is one or `ttl` is
    /// given. `costs` has one number for all calls of the receipt, or one for each. A receipt that
    /// is not open is the error [`VerbError::NotOpen`].
    fn extend(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
        at: Option<Time>,
    ) -> Pending<Result<Answer, BackendError>>;

    /// Cancels a reservation: the part of its cost that still counts is returned to the key.
    /// Returns `true` if there was such a part.
    fn cancel(&self, receipt: &Receipt, at: Option<Time>) -> Pending<Result<bool, BackendError>>;

    /// Changes the charge of a reservation, extensions included, to what was used: one number for
    /// all calls of the receipt, or one for each. The result is `false` if the receipt is not open.
    fn settle(
        &self,
        receipt: &Receipt,
        used: &[u64],
        at: Option<Time>,
    ) -> Pending<Result<bool, BackendError>>;

    /// Cancels (if `used` is 0) or settles a reservation of one call whose caller cannot wait for
    /// the result, such as a request that is dropped. A backend whose `cancel` takes time does this
    /// in the background.
    fn settle_detached(&self, receipt: &Receipt, used: u64);

    /// Discards a receipt; its charge stays. Without this a receipt is kept until it expires.
    fn discard_receipt(&self, receipt: &Receipt);

    /// The decision for cost 0 on a receipt's key, if it is known without a round trip.
    fn standing(&self, receipt: &Receipt) -> Option<Decision>;

    /// When the key's next window starts, or its next unit is available.
    fn next_window(&self, key: &dyn Key, at: Option<Time>) -> Pending<Result<Time, BackendError>>;

    /// What the key has used under each limit, in their order. A fallback cannot answer this.
    fn usage(&self, key: &dyn Key, at: Option<Time>) -> Pending<Result<Vec<(Limit, Usage)>, BackendError>>;

    /// Deletes the key's state. Its receipts are void.
    fn reset(&self, key: &dyn Key) -> Pending<Result<(), BackendError>>;

    /// Waits in a queue until the call is allowed, for at most `max_wait` if there is one.
    fn acquire(
        &self,
        key: &dyn Key,
        cost: u64,
        max_wait: Option<Duration>,
    ) -> Pending<Result<Acquired, BackendError>>;

    /// Waits for the delay of a call that was allowed for later.
    fn delay(&self, delay: Duration) -> Pending<()>;

    /// The limits.
    fn limits(&self) -> Arc<[Limit]>;

    /// A number that changes when the limits do.
    fn changes(&self) -> u64 {
        0
    }
}

/// A `concurrency` limit in some store: [`Semaphore`](crate::semaphore::Semaphore) in memory, or
/// `sluicegate_redis::RedisSemaphore`.
pub trait LeaseBackend: fmt::Debug + Send + Sync {
    /// Acquires a lease if enough permits are free now.
    fn try_acquire(
        &self,
        key: &dyn Key,
        cost: u64,
        at: Option<Time>,
    ) -> Pending<Result<Grant<HeldLease>, BackendError>>;

    /// Acquires a lease, waiting in the key's queue for at most `max_wait` if there is one.
    fn acquire(
        &self,
        key: &dyn Key,
        cost: u64,
        max_wait: Option<Duration>,
    ) -> Pending<Result<Grant<HeldLease>, BackendError>>;

    /// Extends a live lease by a full TTL. The result is `false` if it has expired.
    fn renew(&self, key: &dyn Key, lease: &LeaseId, at: Option<Time>) -> Pending<Result<bool, BackendError>>;

    /// Releases a lease. The result is `false` if it had expired.
    fn release(
        &self,
        key: &dyn Key,
        lease: &LeaseId,
        at: Option<Time>,
    ) -> Pending<Result<bool, BackendError>>;

    /// Decides whether a lease of this cost would be granted now. None is acquired.
    fn peek(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Pending<Result<Answer, BackendError>>;

    /// What the key's leases use of the limit. A fallback cannot answer this.
    fn usage(&self, key: &dyn Key, at: Option<Time>) -> Pending<Result<(Limit, Usage), BackendError>>;

    /// Deletes the key's leases.
    fn reset(&self, key: &dyn Key) -> Pending<Result<(), BackendError>>;

    /// The limit.
    fn limit(&self) -> Limit;
}

/// The answer to a reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a denied reservation charges nothing: check `answer.allowed()`"]
#[non_exhaustive]
pub struct Reserved {
    /// The answer.
    pub answer: Answer,
    /// For one cancel or settle. `None` if nothing was charged, or only by a fallback.
    pub receipt: Option<Receipt>,
    /// The cost that was granted, 0 if denied: less than asked only with
    /// [`ReserveOptions::at_least`].
    pub granted: u64,
}

impl Reserved {
    /// Creates the answer to a reservation.
    pub fn new(answer: Answer, granted: u64, receipt: Option<Receipt>) -> Reserved {
        Reserved { answer, receipt, granted }
    }
}

/// A lease of any backend. Dropping it releases it.
#[derive(Debug)]
#[must_use = "dropping a lease releases it"]
pub enum HeldLease {
    /// In this process's memory.
    Memory(Lease),
    /// In a shared store.
    Store(Box<dyn StoreLease>),
}

/// A lease in a shared store. Dropping it releases it in the background.
pub trait StoreLease: fmt::Debug + Send + Sync {
    /// The id of the lease.
    fn id(&self) -> LeaseId;

    /// Keeps the lease when this value is dropped: it is released by its id, or expires.
    fn keep(self: Box<Self>) -> LeaseId;
}

impl From<Grant> for Grant<HeldLease> {
    #[inline]
    fn from(grant: Grant) -> Grant<HeldLease> {
        let (acquired, lease) = grant.into_parts();
        Grant::new(acquired, lease.map(HeldLease::Memory))
    }
}

impl HeldLease {
    /// The id of the lease.
    pub fn id(&self) -> LeaseId {
        match self {
            HeldLease::Memory(lease) => lease.id(),
            HeldLease::Store(lease) => lease.id(),
        }
    }

    /// Keeps the lease when this value is dropped: it is released by its id, or expires.
    pub fn keep(self) -> LeaseId {
        match self {
            HeldLease::Memory(lease) => lease.keep(),
            HeldLease::Store(lease) => lease.keep(),
        }
    }
}

/// Why a call has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BackendError {
    /// The limit does not support the verb, or an argument does not fit.
    Verb(VerbError),
    /// The shared store gave no answer, and the limiter has no fallback.
    Store(StoreFailure),
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendError::Verb(error) => error.fmt(f),
            BackendError::Store(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for BackendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // It prints as the inner error, so its source is that error's source.
        match self {
            BackendError::Verb(error) => error.source(),
            BackendError::Store(failure) => failure.source(),
        }
    }
}

impl From<VerbError> for BackendError {
    fn from(error: VerbError) -> BackendError {
        BackendError::Verb(error)
    }
}

impl From<Unsupported> for BackendError {
    fn from(error: Unsupported) -> BackendError {
        BackendError::Verb(error.into())
    }
}

impl From<StoreFailure> for BackendError {
    fn from(failure: StoreFailure) -> BackendError {
        BackendError::Store(failure)
    }
}
