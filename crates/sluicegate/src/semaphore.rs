//! Concurrency limits: how many calls of a key run at once.
//!
//! A [`Semaphore`] with a `concurrency` limit grants a lease per call in progress. The lease is
//! released when it is dropped, and expires after the limit's `ttl` if its holder crashed. Waiters
//! of a key are served first in, first out. Semaphores of one [`LeasePool`] share its leases. The
//! guide is [`guide::concurrency`](crate::guide::concurrency).
//!
//! # Map
//!
//! | file | holds |
//! |---|---|
//! | `acquire.rs` | the call that waits for a lease |
//! | `grant.rs`, `lease.rs` | its result, and the lease that it holds |
//! | `shard.rs` | a shard of the keys: its lock, and the effects deferred until its release |
//! | `state.rs` | what the lock protects |
//! | `locked_shard.rs`, `queue.rs` | what happens under the lock, to leases and to waiters |
//! | `capacity.rs` | the bound on leases over all shards |
//! | `scope.rs` | several semaphores that share one pool of leases |
//!
//! The rules of the limit are the core's: `sluicegate_core::concurrency`.
//!
//! # Invariants
//!
//! - **A lease id is used once.** A lease is found by its index and a nonce, so a late release or
//!   renew never affects another lease.
//! - **Expired leases are removed before the core is asked about a key** (`locked_shard.rs`),
//!   because only the shard knows where each lease is stored. An expired lease that any caller has
//!   seen expired is gone: it cannot come back if the clock steps backwards.
//! - **A limit applies per key, not per scope**: it is that of the semaphore that last used the
//!   key.
//! - **No user code runs under a lock**, and a granted lease has its owner before any user code
//!   runs. If that panics, the owner is dropped and releases the lease.

mod acquire;
mod builder;
mod capacity;
mod grant;
mod lease;
mod locked_shard;
mod queue;
mod scope;
mod shard;
mod slab;
mod state;
mod stats;

pub use crate::ids::LeaseId;
pub use acquire::AcquireLease;
pub use builder::{MAX_LEASES_DEFAULT, MAX_LEASES_MAX, SemaphoreBuilder};
pub use grant::Grant;
pub use lease::Lease;
pub use scope::{LeasePool, LeasePoolBuilder, LeaseScope};
pub use stats::SemaphoreStats;

use crate::callbacks::Callbacks;
use crate::key::{Fingerprint, Key, Seeds};
use crate::limit::Limit;
use crate::limiter::{BuildError, IntoLimits};
use crate::sync::Ordering;
use crate::wait::MaxWait;
use lease::LeaseRef;
use scope::ScopedLimit;
use shard::{Caller, Common, Deferred, Shard};
use sluicegate_core::{Decision, Time, Usage};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A concurrency limit per key, which grants leases.
///
/// ```
/// use sluicegate::semaphore::Semaphore;
///
/// let exports = Semaphore::new("concurrency 2 ttl=30s")?;
/// let leases: Vec<_> = (0..3).filter_map(|_| exports.try_acquire("user:42", 1).lease()).collect();
/// assert_eq!(leases.len(), 2);
/// drop(leases);
/// assert!(exports.acquire("user:42", 1).blocking().allowed()); // in async code: .await
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// A lease is released when it is dropped. With a `ttl` it also expires unless it is renewed, so a
/// holder that crashes, hangs or leaks its lease frees its permits. Without one it is held until it
/// is dropped, in this process only, and the clock is read only for waiters.
///
/// A semaphore is cheap to share: a clone is another handle to it. A key takes memory only while it
/// has leases or waiters, and all of it is bounded ([`SemaphoreBuilder::max_leases`]).
#[derive(Clone)]
pub struct Semaphore {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Arc<[Arc<Shard>]>,
    common: Arc<Common>,
    seeds: Arc<Seeds>,
    max_leases: usize,
    /// If several semaphores share a pool: the limit and scope of this one.
    scoped: Option<Arc<ScopedLimit>>,
    /// As text and data, for [`Semaphore::limit`].
    limit: Mutex<Limit>,
}

impl Semaphore {
    /// Creates a semaphore with the default settings: `"concurrency 10 ttl=30s"`.
    ///
    /// # Errors
    /// If the text is not a limit, or not a `concurrency` limit.
    pub fn new(limit: impl IntoLimits) -> Result<Semaphore, BuildError> {
        Semaphore::builder(limit).build()
    }

    /// A builder for a semaphore.
    pub fn builder(limit: impl IntoLimits) -> SemaphoreBuilder {
        SemaphoreBuilder::new(limit)
    }

    fn from_parts(
        shards: Arc<[Arc<Shard>]>,
        common: Arc<Common>,
        seeds: Seeds,
        max_leases: usize,
        limit: Mutex<Limit>,
    ) -> Semaphore {
        let seeds = Arc::new(seeds);
        Semaphore { inner: Arc::new(Inner { shards, common, seeds, max_leases, scoped: None, limit }) }
    }

    /// A semaphore of a scope, with the same pool.
    fn in_scope(&self, scoped: Arc<ScopedLimit>, limit: Limit) -> Semaphore {
        let Inner { shards, common, seeds, max_leases, .. } = &*self.inner;
        let inner = Inner {
            shards: Arc::clone(shards),
            common: Arc::clone(common),
            seeds: Arc::clone(seeds),
            max_leases: *max_leases,
            scoped: Some(scoped),
            limit: Mutex::new(limit),
        };
        Semaphore { inner: Arc::new(inner) }
    }

    #[inline]
    fn caller(&self) -> Caller<'_> {
        self.inner.scoped.as_ref()
    }

    /// Acquires a lease of this cost if enough permits are free and no call waits for them. Cost 0
    /// is always allowed, without a lease.
    #[inline]
    pub fn try_acquire(&self, key: impl Key, cost: u64) -> Grant {
        let key = self.fingerprint(key);
        self.shard(key).try_acquire(self.caller(), key, cost, None)
    }

    /// Tries to acquire a lease at a given time: see [`Semaphore::try_acquire`].
    pub fn try_acquire_at(&self, key: impl Key, cost: u64, now: Time) -> Grant {
        let key = self.fingerprint(key);
        self.shard(key).try_acquire(self.caller(), key, cost, Some(now))
    }

    /// Waits until enough permits are free for a lease of this cost, first in, first out per key.
    ///
    /// It is denied only if no wait would help or the queue is full. Waiters of a key are never
    /// overtaken, neither by a smaller cost nor by [`Semaphore::try_acquire`].
    #[inline]
    pub fn acquire(&self, key: impl Key, cost: u64) -> AcquireLease {
        self.acquire_with(key, cost, MaxWait::Forever)
    }

    /// Waits like [`Semaphore::acquire`], for at most `max_wait`. When leases will be released is
    /// unknown, so the call is denied only after that time.
    #[inline]
    pub fn acquire_within(&self, key: impl Key, cost: u64, max_wait: Duration) -> AcquireLease {
        self.acquire_with(key, cost, MaxWait::For(max_wait.into()))
    }

    /// Waits like [`Semaphore::acquire`], until a time on the semaphore's clock.
    #[inline]
    pub fn acquire_until(&self, key: impl Key, cost: u64, deadline: Time) -> AcquireLease {
        self.acquire_with(key, cost, MaxWait::Until(deadline))
    }

    #[inline]
    fn acquire_with(&self, key: impl Key, cost: u64, max_wait: MaxWait) -> AcquireLease {
        let (key, cost) = (self.fingerprint(key), cost);
        AcquireLease::new(Arc::clone(self.shard(key)), self.inner.scoped.clone(), key, cost, max_wait)
    }

    /// Extends a live lease of the key by a full TTL. Returns `false` if it has expired, was
    /// released, or belongs to another key.
    #[must_use = "a lease that is not renewed has expired: another call may hold its permits"]
    pub fn renew(&self, key: impl Key, lease: &LeaseId) -> bool {
        self.find(key, lease)
            .is_some_and(|(shard, key, lease)| shard.renew_by_id(self.caller(), key, lease, None))
    }

    /// Renews a lease at a given time: see [`Semaphore::renew`].
    #[must_use = "a lease that is not renewed has expired: another call may hold its permits"]
    pub fn renew_at(&self, key: impl Key, lease: &LeaseId, now: Time) -> bool {
        self.find(key, lease)
            .is_some_and(|(shard, key, lease)| shard.renew_by_id(self.caller(), key, lease, Some(now)))
    }

    /// Releases a lease of the key. Returns `true` if it was live.
    pub fn release(&self, key: impl Key, lease: &LeaseId) -> bool {
        self.find(key, lease)
            .is_some_and(|(shard, key, lease)| shard.release_by_id(self.caller(), key, lease, None))
    }

    /// Releases a lease at a given time: see [`Semaphore::release`].
    pub fn release_at(&self, key: impl Key, lease: &LeaseId, now: Time) -> bool {
        self.find(key, lease)
            .is_some_and(|(shard, key, lease)| shard.release_by_id(self.caller(), key, lease, Some(now)))
    }

    /// Decides whether a lease of this cost would be granted now. None is acquired.
    /// ([`SemaphoreBuilder::max_leases`] is not considered.)
    pub fn peek(&self, key: impl Key, cost: u64) -> Decision {
        let key = self.fingerprint(key);
        self.shard(key).peek(self.caller(), key, cost, None)
    }

    /// Decides for a given time: see [`Semaphore::peek`].
    pub fn peek_at(&self, key: impl Key, cost: u64, now: Time) -> Decision {
        let key = self.fingerprint(key);
        self.shard(key).peek(self.caller(), key, cost, Some(now))
    }

    /// Returns the limit and what the key's leases use of it. Changes nothing.
    pub fn usage(&self, key: impl Key) -> (Limit, Usage) {
        self.usage_in(key, None)
    }

    /// Returns what the key's leases use at a given time: see [`Semaphore::usage`].
    pub fn usage_at(&self, key: impl Key, now: Time) -> (Limit, Usage) {
        self.usage_in(key, Some(now))
    }

    fn usage_in(&self, key: impl Key, now: Option<Time>) -> (Limit, Usage) {
        let key = self.fingerprint(key);
        (self.limit(), self.shard(key).usage(self.caller(), key, now))
    }

    /// Voids all leases of the key, and grants the freed permits to its waiters.
    pub fn reset(&self, key: impl Key) {
        let key = self.fingerprint(key);
        self.shard(key).reset(self.caller(), key);
    }

    /// Changes the limit of a semaphore in use. Leases stay held and keep their expiry until they
    /// are renewed; if more is held than the new limit, nothing remains until enough is released.
    /// Waiters follow the new limit.
    ///
    /// # Errors
    /// If the text is not a limit, or not a `concurrency` limit; and for a semaphore of a
    /// [`LeaseScope`]: create another one of the same scope instead.
    pub fn change(&self, limit: impl IntoLimits) -> Result<(), BuildError> {
        let (limit, concurrency) = builder::single(limit.into_limits())?;
        if self.inner.scoped.is_some() {
            return Err(BuildError::ScopedSemaphore);
        }
        let shards = &self.inner.shards;
        // This lock serializes changes, so that two of them do not mix. No decision needs it.
        let mut current = self.inner.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let deferred: Vec<Option<Deferred>> = shards.iter().map(|shard| shard.change(concurrency)).collect();
        *current = limit;
        drop(current);
        let mut callbacks = Callbacks::default();
        for (shard, deferred) in shards.iter().zip(deferred) {
            shard.run_deferred_in(deferred, &mut callbacks);
        }
        callbacks.end();
        Ok(())
    }

    /// The current limit.
    pub fn limit(&self) -> Limit {
        self.inner.limit.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the semaphore has decided and holds. This locks the shards one after another, so call
    /// it as often as metrics are read, not with every call.
    pub fn stats(&self) -> SemaphoreStats {
        let mut stats = SemaphoreStats {
            max_leases: self.inner.max_leases,
            waiting: self.inner.common.waiting.load(Ordering::Relaxed),
            ..SemaphoreStats::default()
        };
        self.inner.shards.iter().for_each(|shard| shard.add_to(&mut stats));
        stats
    }

    /// The time on the semaphore's clock.
    pub fn now(&self) -> Time {
        self.inner.common.clock.now()
    }

    #[inline]
    fn fingerprint(&self, key: impl Key) -> Fingerprint {
        match &self.inner.scoped {
            None => self.inner.seeds.fingerprint(&key),
            Some(scoped) => self.inner.seeds.fingerprint_in(scoped.name(), &key),
        }
    }

    /// The shard of a key. Its table uses the first half of the fingerprint, so the shard is chosen
    /// by the second.
    #[inline]
    fn shard(&self, key: Fingerprint) -> &Arc<Shard> {
        let [.., last] = key.low.to_le_bytes();
        let shards = &self.inner.shards;
        &shards[usize::from(last) % shards.len()]
    }

    fn find(&self, key: impl Key, lease: &LeaseId) -> Option<(&Arc<Shard>, Fingerprint, LeaseRef)> {
        let key = self.fingerprint(key);
        let (number, lease) = lease.opened(&self.inner.common.seal, key)?;
        let shard = self.shard(key);
        (shard.number() == number).then_some((shard, key, lease))
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("limit", &self.limit().to_string()).finish_non_exhaustive()
    }
}
