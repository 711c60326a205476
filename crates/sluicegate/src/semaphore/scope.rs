//! Semaphores that share one pool of leases, with one bound for all of them.
//!
//! ```text
//! scope "exports"  ──▶ concurrency 10 ttl=30s ──┐
//!                  ──▶ concurrency 50 ttl=30s ──┼──▶ leases of (scope, key), in one pool
//! scope "imports"  ──▶ concurrency 5 ttl=1min ──┘
//! ```
//!
//! A lease belongs to (scope, key), whichever semaphore of the scope granted it. Waiters and
//! holders of a key follow the limit of the semaphore that last used the key, and are counted for
//! its scope. Keys of one scope may have different limits, so a new semaphore affects a key only
//! once it is used for it.

use super::stats::SemaphoreStats;
use super::{Semaphore, builder};
use crate::clock::Clock;
use crate::key::{Fingerprint, Key};
use crate::limiter::{BuildError, IntoLimits};
use crate::sync::{AtomicUsize, Ordering};
use sluicegate_core::Time;
use sluicegate_core::concurrency::Concurrency;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The limit of the pool itself, which grants no leases. Its `ttl` makes the shards read the clock.
const POOL_LIMIT: &str = "concurrency 1 ttl=1s";

/// A pool for the leases of several semaphores, with one bound for all of them.
///
/// ```
/// use sluicegate::semaphore::LeasePool;
///
/// let pool = LeasePool::builder().max_leases(10_000).build()?;
/// let exports = pool.scope("exports");
/// let few = exports.semaphore("concurrency 1 ttl=30s")?;
/// let more = exports.semaphore("concurrency 3 ttl=30s")?;
/// let lease = few.try_acquire("tenant:acme", 1).lease();
/// assert!(lease.is_some() && !few.try_acquire("tenant:acme", 1).allowed());
/// assert_eq!(more.peek("tenant:acme", 1).remaining(), 2); // shared leases
/// let imports = pool.scope("imports").semaphore("concurrency 3 ttl=30s")?;
/// assert_eq!(imports.peek("tenant:acme", 1).remaining(), 3);
/// assert_eq!(exports.stats().leases, 1);
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// A clone is another handle to the same pool.
#[derive(Clone)]
pub struct LeasePool {
    pool: Semaphore,
    /// The counts of the scopes in use.
    counts: Arc<Mutex<HashMap<[u64; 2], Weak<ScopeCounts>>>>,
}

/// Settings of a [`LeasePool`]. Created by [`LeasePool::builder`].
#[derive(Debug)]
#[must_use]
pub struct LeasePoolBuilder {
    builder: builder::SemaphoreBuilder,
}

/// What leases belong to, together with a key. Created by [`LeasePool::scope`].
#[derive(Clone)]
pub struct LeaseScope {
    pool: Semaphore,
    name: Fingerprint,
    counts: Arc<ScopeCounts>,
}

/// The counts of a scope, and its bound.
struct ScopeCounts {
    leases: AtomicUsize,
    waiting: AtomicUsize,
    expired: AtomicU64,
    /// Leases and waiters, counted before they exist: a claim that exceeds `max` fails.
    claimed: AtomicUsize,
    max: AtomicUsize,
}

impl Default for ScopeCounts {
    fn default() -> ScopeCounts {
        ScopeCounts {
            leases: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            expired: AtomicU64::new(0),
            claimed: AtomicUsize::new(0),
            max: AtomicUsize::new(usize::MAX),
        }
    }
}

/// A limit, and the scope of the keys that it applies to.
pub(super) struct ScopedLimit {
    pub(super) limit: Concurrency,
    name: Fingerprint,
    counts: Arc<ScopeCounts>,
}

impl LeasePool {
    /// A builder for a pool.
    pub fn builder() -> LeasePoolBuilder {
        LeasePoolBuilder { builder: Semaphore::builder(POOL_LIMIT) }
    }

    /// The scope of this name. Scopes of one name are the same.
    pub fn scope(&self, name: impl Key) -> LeaseScope {
        let name = self.pool.fingerprint(name);
        let mut known = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let id = [name.high, name.low];
        let counts = known.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| {
            // Unused scopes are dropped before another is added.
            known.retain(|_, counts| counts.strong_count() > 0);
            let counts = Arc::<ScopeCounts>::default();
            known.insert(id, Arc::downgrade(&counts));
            counts
        });
        LeaseScope { pool: self.pool.clone(), name, counts }
    }

    /// What all its semaphores have decided and hold.
    pub fn stats(&self) -> SemaphoreStats {
        self.pool.stats()
    }

    /// Removes expired leases under keys that no call uses any more, some thousands at a time. That
    /// also happens when the pool is full; call this before reading [`LeaseScope::stats`].
    pub fn clear_expired(&self, now: Time) {
        self.pool.inner.shards.iter().for_each(|shard| shard.clear_expired(now));
    }
}

impl LeasePoolBuilder {
    /// The maximum number of leases held at once, as
    /// [`SemaphoreBuilder::max_leases`](builder::SemaphoreBuilder::max_leases).
    pub fn max_leases(mut self, max_leases: usize) -> LeasePoolBuilder {
        self.builder = self.builder.max_leases(max_leases);
        self
    }

    /// The maximum number of waiters per key.
    pub fn max_queue(mut self, max_queue: usize) -> LeasePoolBuilder {
        self.builder = self.builder.max_queue(max_queue);
        self
    }

    /// The maximum number of waiters under all keys.
    pub fn max_waiters(mut self, max_waiters: usize) -> LeasePoolBuilder {
        self.builder = self.builder.max_waiters(max_waiters);
        self
    }

    /// The clock. For tests: [`crate::clock::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> LeasePoolBuilder {
        self.builder = self.builder.clock(clock);
        self
    }

    /// Builds the pool.
    ///
    /// # Errors
    /// If a setting is out of bounds.
    pub fn build(self) -> Result<LeasePool, BuildError> {
        Ok(LeasePool { pool: self.builder.build()?, counts: Arc::default() })
    }
}

impl LeaseScope {
    /// A semaphore whose leases belong to this scope. Its [`stats`](Semaphore::stats) are the
    /// pool's. Its limit applies to the waiters of a key as soon as any of its methods is called
    /// with that key; a [`peek`](Semaphore::peek) suffices.
    ///
    /// # Errors
    /// If the text is not one `concurrency` limit.
    pub fn semaphore(&self, limit: impl IntoLimits) -> Result<Semaphore, BuildError> {
        let (limit, concurrency) = builder::single(limit.into_limits())?;
        let scoped = ScopedLimit { limit: concurrency, name: self.name, counts: Arc::clone(&self.counts) };
        Ok(self.pool.in_scope(Arc::new(scoped), limit))
    }

    /// Sets the maximum number of leases held and waited for in this scope; by default only the
    /// pool's applies. Beyond it, a call is denied with
    /// [`Denial::NoRoom`](crate::wait::Denial::NoRoom). Leases above a new maximum stay until they
    /// are released or expire.
    ///
    /// A scope never takes more of the pool than its maximum. If the maxima of all scopes add up to
    /// at most the pool's, no scope can use up the leases of another.
    pub fn set_max_leases(&self, max_leases: usize) {
        self.counts.max.store(max_leases, Ordering::Relaxed);
    }

    /// Another scope whose leases are counted with those of this one, under one maximum.
    #[must_use = "this scope is unchanged"]
    pub fn counting(&self, name: impl Key) -> LeaseScope {
        let name = self.pool.fingerprint(name);
        LeaseScope { pool: self.pool.clone(), name, counts: Arc::clone(&self.counts) }
    }

    /// Its held leases, expired leases and waiters. Decisions are counted for the whole pool only.
    pub fn stats(&self) -> SemaphoreStats {
        let ScopeCounts { leases, waiting, expired, .. } = &*self.counts;
        SemaphoreStats {
            leases: leases.load(Ordering::Relaxed),
            waiting: waiting.load(Ordering::Relaxed),
            expired: expired.load(std::sync::atomic::Ordering::Relaxed),
            ..SemaphoreStats::default()
        }
    }
}

impl ScopedLimit {
    /// The scope.
    pub(super) fn name(&self) -> Fingerprint {
        self.name
    }

    /// Counts a key with these leases and waiters for this scope from now on, and no longer for the
    /// other.
    pub(super) fn takes_over(&self, other: Option<&ScopedLimit>, leases: usize, waiting: usize) {
        if let Some(other) = other {
            if Arc::ptr_eq(&other.counts, &self.counts) {
                return;
            }
            other.counts.leases.fetch_sub(leases, Ordering::Relaxed);
            other.counts.waiting.fetch_sub(waiting, Ordering::Relaxed);
            other.counts.claimed.fetch_sub(leases + waiting, Ordering::Relaxed);
        }
        self.counts.claimed.fetch_add(leases + waiting, Ordering::Relaxed);
        self.counts.leases.fetch_add(leases, Ordering::Relaxed);
        self.counts.waiting.fetch_add(waiting, Ordering::Relaxed);
    }

    /// Claims room for a lease or a waiter. Returns `false` if the scope has its maximum.
    pub(super) fn claim(&self) -> bool {
        let ScopeCounts { claimed, max, .. } = &*self.counts;
        let max = max.load(Ordering::Relaxed);
        let more = |claimed: usize| (claimed < max).then_some(claimed + 1);
        claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives up a claim: there is no lease, and no waiter that could get one.
    pub(super) fn unclaim(&self) {
        self.counts.claimed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns `true` if the scope has its maximum of leases and waiters.
    pub(super) fn is_full(&self) -> bool {
        self.counts.claimed.load(Ordering::Relaxed) >= self.counts.max.load(Ordering::Relaxed)
    }

    pub(super) fn lease_added(&self) {
        self.counts.leases.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lease_removed(&self) {
        self.counts.leases.fetch_sub(1, Ordering::Relaxed);
        self.unclaim();
    }

    pub(super) fn lease_expired(&self) {
        self.counts.expired.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    pub(super) fn waiter_added(&self) {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn waiter_removed(&self) {
        self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for LeasePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasePool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl fmt::Debug for LeaseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseScope").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
