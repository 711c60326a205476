//! Semaphores that share one room: bounded once, for all of them.
//!
//! ```text
//! scope "exports"  ──▶ concurrency 10 ttl=30s ──┐
//!                  ──▶ concurrency 50 ttl=30s ──┼──▶ leases of (scope, key), in one room
//! scope "imports"  ──▶ concurrency 5 ttl=1min   ──┘
//! ```
//!
//! A lease belongs to (scope, key), whichever semaphore of the scope it was taken from. The numbers of the one that was last
//! asked about a key hold for those who wait there, and it is counted with that one's: keys of one scope may have numbers of their own, so
//! that a new semaphore says nothing of any key until it is asked about it.

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

/// The limit of the room itself, under which nobody asks. Its ttl says that time matters.
const POOL_LIMIT: &str = "concurrency 1 ttl=1s";

/// Room for the leases of many semaphores, bounded once for all of them.
///
/// ```
/// use sluicegate::semaphore::LeasePool;
///
/// let room = LeasePool::builder().max_leases(10_000).build()?;
/// let exports = room.scope("exports");
/// let few = exports.semaphore("concurrency 1 ttl=30s")?;
/// let more = exports.semaphore("concurrency 3 ttl=30s")?;
/// let lease = few.try_acquire("acme", 1).lease();
/// assert!(lease.is_some() && !few.try_acquire("acme", 1).allowed());
/// assert_eq!(more.peek("acme", 1).remaining(), 2); // the same scope and key: the same leases
/// assert_eq!(room.scope("imports").semaphore("concurrency 3 ttl=30s")?.peek("acme", 1).remaining(), 3);
/// assert_eq!(exports.stats().leases, 1);
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// Clones are the same room.
#[derive(Clone)]
pub struct LeasePool {
    pool: Semaphore,
    /// What is counted of scopes that are in use.
    counts: Arc<Mutex<HashMap<[u64; 2], Weak<Counts>>>>,
}

/// Settings of a room. Made by [`LeasePool::builder`].
#[derive(Debug)]
#[must_use]
pub struct LeasePoolBuilder {
    builder: builder::SemaphoreBuilder,
}

/// What leases belong to, together with a key. Made by [`LeasePool::scope`].
#[derive(Clone)]
pub struct LeaseScope {
    pool: Semaphore,
    name: Fingerprint,
    counts: Arc<Counts>,
}

/// What is counted of a scope.
#[derive(Default)]
struct Counts {
    leases: AtomicUsize,
    waiting: AtomicUsize,
    expired: AtomicU64,
}

/// The numbers that a key was last asked about by, and whose key it is.
pub(super) struct ScopedLimit {
    pub(super) limit: Concurrency,
    name: Fingerprint,
    counts: Arc<Counts>,
}

impl LeasePool {
    /// A room with settings of your own.
    pub fn builder() -> LeasePoolBuilder {
        LeasePoolBuilder { builder: Semaphore::builder(POOL_LIMIT) }
    }

    /// What leases of this name belong to. Scopes of one name are the same.
    pub fn scope(&self, name: impl Key) -> LeaseScope {
        let name = self.pool.fingerprint(name);
        let mut known = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let id = [name.high, name.low];
        let counts = known.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| {
            // Whatever is not in use any more is forgotten before there is another one.
            known.retain(|_, counts| counts.strong_count() > 0);
            let counts = Arc::<Counts>::default();
            known.insert(id, Arc::downgrade(&counts));
            counts
        });
        LeaseScope { pool: self.pool.clone(), name, counts }
    }

    /// What all its semaphores have decided, and what it holds.
    pub fn stats(&self) -> SemaphoreStats {
        self.pool.stats()
    }

    /// Clears away leases that have lapsed under keys that nobody asks about any more, those of some thousands of keys at once. That
    /// happens by itself when there is no room for another; this is for who counts them by [`LeaseScope::stats`].
    pub fn clear_expired(&self, now: Time) {
        self.pool.inner.shards.iter().for_each(|shard| shard.clear_expired(now));
    }
}

impl LeasePoolBuilder {
    /// The most leases that are held at once, as [`SemaphoreBuilder::max_leases`](builder::SemaphoreBuilder::max_leases):
    /// [`crate::MAX_LEASES_DEFAULT`] unless said.
    pub fn max_leases(mut self, max_leases: usize) -> LeasePoolBuilder {
        self.builder = self.builder.max_leases(max_leases);
        self
    }

    /// The most callers that may wait in line under one key.
    pub fn max_queue(mut self, max_queue: usize) -> LeasePoolBuilder {
        self.builder = self.builder.max_queue(max_queue);
        self
    }

    /// The most callers that may wait in line under all keys.
    pub fn max_waiters(mut self, max_waiters: usize) -> LeasePoolBuilder {
        self.builder = self.builder.max_waiters(max_waiters);
        self
    }

    /// A clock of your own. For tests: [`crate::clock::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> LeasePoolBuilder {
        self.builder = self.builder.clock(clock);
        self
    }

    /// Makes the room.
    ///
    /// # Errors
    /// When a number is out of bounds.
    pub fn build(self) -> Result<LeasePool, BuildError> {
        Ok(LeasePool { pool: self.builder.build()?, counts: Arc::default() })
    }
}

impl LeaseScope {
    /// A semaphore of a limit whose leases belong to this scope. Its [`stats`](Semaphore::stats) are the room's. Its numbers hold for those who
    /// wait under a key as soon as it is asked about that key, by whichever verb; a [`peek`](Semaphore::peek) will do.
    ///
    /// # Errors
    /// When the text is not one limit of `concurrency`.
    pub fn semaphore(&self, limit: impl IntoLimits) -> Result<Semaphore, BuildError> {
        let (limit, concurrency) = builder::single(limit.into_limits())?;
        let scoped = ScopedLimit { limit: concurrency, name: self.name, counts: Arc::clone(&self.counts) };
        Ok(self.pool.in_scope(Arc::new(scoped), limit))
    }

    /// Another scope, whose leases are counted with those of this one.
    #[must_use = "the scope itself stays as it is"]
    pub fn counting(&self, name: impl Key) -> LeaseScope {
        let name = self.pool.fingerprint(name);
        LeaseScope { pool: self.pool.clone(), name, counts: Arc::clone(&self.counts) }
    }

    /// The leases that are out, those that have lapsed and those who wait. Decisions are counted for the room alone.
    pub fn stats(&self) -> SemaphoreStats {
        let Counts { leases, waiting, expired } = &*self.counts;
        SemaphoreStats {
            leases: leases.load(Ordering::Relaxed),
            waiting: waiting.load(Ordering::Relaxed),
            expired: expired.load(std::sync::atomic::Ordering::Relaxed),
            ..SemaphoreStats::default()
        }
    }
}

impl ScopedLimit {
    /// Whose keys they are.
    pub(super) fn name(&self) -> Fingerprint {
        self.name
    }

    /// A key with so many leases and so many who wait is of this one from now on, and no longer of the other.
    pub(super) fn takes_over(&self, other: Option<&ScopedLimit>, leases: usize, waiting: usize) {
        if let Some(other) = other {
            if Arc::ptr_eq(&other.counts, &self.counts) {
                return;
            }
            other.counts.leases.fetch_sub(leases, Ordering::Relaxed);
            other.counts.waiting.fetch_sub(waiting, Ordering::Relaxed);
        }
        self.counts.leases.fetch_add(leases, Ordering::Relaxed);
        self.counts.waiting.fetch_add(waiting, Ordering::Relaxed);
    }

    pub(super) fn lease_added(&self) {
        self.counts.leases.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lease_removed(&self) {
        self.counts.leases.fetch_sub(1, Ordering::Relaxed);
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
