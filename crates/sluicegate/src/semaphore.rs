//! Semaphores: how many may be at work at once under each key, by leases that are returned or lapse.
//!
//! `book.rs` is what is known of keys, `desk.rs` and `line.rs` what is done under their lock to leases and to those who wait, `shard.rs`
//! that lock and whatever comes after it; `acquire.rs` is the call that waits, `grant.rs` its answer, `lease.rs` what it holds. The rules are
//! the core's: `sluicegate_core::concurrency`.

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

pub use crate::ids::{BadLeaseId, LeaseId};
pub use acquire::AcquireLease;
pub use builder::{MAX_LEASES_DEFAULT, MAX_LEASES_MAX, SemaphoreBuilder};
pub use grant::Grant;
pub use lease::Lease;
pub use scope::{LeasePool, LeasePoolBuilder, LeaseScope};
pub use stats::SemaphoreStats;

use crate::callbacks::Callbacks;
use crate::key::{Fingerprint, Key, Seeds};
use crate::limit::Limit;
use crate::limiter::{BuildError, ChangeError, IntoLimits};
use crate::sync::Ordering;
use crate::wait::MaxWait;
use lease::LeaseRef;
use scope::ScopedLimit;
use shard::{Caller, Common, Deferred, Shard};
use sluicegate_core::bounds::saturating_count;
use sluicegate_core::{Decision, Time};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// So many at once under each of as many keys as call.
///
/// ```
/// use sluicegate::semaphore::Semaphore;
///
/// let exports = Semaphore::new("concurrency 2 ttl=30s")?;
/// let leases: Vec<_> = (0..3).filter_map(|_| exports.try_acquire("Harry", 1).lease()).collect();
/// assert_eq!(leases.len(), 2);
/// drop(leases);
/// assert!(exports.acquire("Harry", 1).blocking().allowed()); // in async code: .await
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// A lease is returned when it is dropped. With `ttl` it also lapses when nobody renews it: whoever crashed, hung or forgot frees its
/// place. Without, it is held until it is dropped, in this process only, and the clock is asked only for those who wait.
///
/// It is cheap to share: its clones are the same semaphore. A key takes memory only while it has leases or somebody who waits, and all of it is
/// bounded ([`SemaphoreBuilder::max_leases`]).
#[derive(Clone)]
pub struct Semaphore {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Arc<[Arc<Shard>]>,
    common: Arc<Common>,
    seeds: Arc<Seeds>,
    max_leases: usize,
    /// Where several semaphores share a room: its own numbers and scope.
    scoped: Option<Arc<ScopedLimit>>,
    /// As text and data, for whoever asks.
    limit: Mutex<Limit>,
}

impl Semaphore {
    /// A semaphore with the default settings: `"concurrency 10 ttl=30s"`.
    ///
    /// # Errors
    /// When the text is not a limit, or another one than `concurrency`.
    pub fn new(limit: impl IntoLimits) -> Result<Semaphore, BuildError> {
        Semaphore::builder(limit).build()
    }

    /// A semaphore with settings of your own.
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

    /// A semaphore of a scope, in the same room.
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

    /// A lease of this cost, if there is room for it now and nobody waits for one. Cost 0 is always allowed, and there is no lease for it.
    #[inline]
    pub fn try_acquire(&self, key: impl Key, cost: u64) -> Grant {
        let key = self.fingerprint(key);
        self.shard(key).try_acquire(self.caller(), key, saturating_count(cost), None)
    }

    /// The same at a time.
    pub fn try_acquire_at(&self, key: impl Key, cost: u64, now: Time) -> Grant {
        let key = self.fingerprint(key);
        self.shard(key).try_acquire(self.caller(), key, saturating_count(cost), Some(now))
    }

    /// Waits for as long as it takes until there is room for a lease of this cost, first come, first served.
    ///
    /// It is refused only if no wait would help, or too many wait already. While callers wait in line under a key, nobody overtakes them: not a
    /// smaller cost, and not [`Semaphore::try_acquire`].
    #[inline]
    pub fn acquire(&self, key: impl Key, cost: u64) -> AcquireLease {
        self.acquire_with(key, cost, MaxWait::Forever)
    }

    /// The same, for at most `max_wait`. Whether a lease will be returned in time nobody knows, so it is refused when the time has passed.
    #[inline]
    pub fn acquire_within(&self, key: impl Key, cost: u64, max_wait: Duration) -> AcquireLease {
        self.acquire_with(key, cost, MaxWait::For(max_wait.into()))
    }

    /// The same, until a time on the semaphore's clock.
    #[inline]
    pub fn acquire_until(&self, key: impl Key, cost: u64, deadline: Time) -> AcquireLease {
        self.acquire_with(key, cost, MaxWait::Until(deadline))
    }

    #[inline]
    fn acquire_with(&self, key: impl Key, cost: u64, max_wait: MaxWait) -> AcquireLease {
        let (key, cost) = (self.fingerprint(key), saturating_count(cost));
        AcquireLease::new(Arc::clone(self.shard(key)), self.inner.scoped.clone(), key, cost, max_wait)
    }

    /// Gives a lease of the key a new ttl from now on. `false` if it is not live any more, or not of this key.
    #[must_use = "a lease that is not renewed has expired: another call may hold its permits"]
    pub fn renew(&self, key: impl Key, lease: &LeaseId) -> bool {
        self.find(key, lease)
            .is_some_and(|(shard, key, lease)| shard.renew_by_id(self.caller(), key, lease, None))
    }

    /// The same at a time.
    #[must_use = "a lease that is not renewed has expired: another call may hold its permits"]
    pub fn renew_at(&self, key: impl Key, lease: &LeaseId, now: Time) -> bool {
        self.find(key, lease)
            .is_some_and(|(shard, key, lease)| shard.renew_by_id(self.caller(), key, lease, Some(now)))
    }

    /// Returns a lease of the key. Whether it was live until then.
    pub fn release(&self, key: impl Key, lease: &LeaseId) -> bool {
        self.find(key, lease)
            .is_some_and(|(shard, key, lease)| shard.release_by_id(self.caller(), key, lease, None))
    }

    /// The same at a time.
    pub fn release_at(&self, key: impl Key, lease: &LeaseId, now: Time) -> bool {
        self.find(key, lease)
            .is_some_and(|(shard, key, lease)| shard.release_by_id(self.caller(), key, lease, Some(now)))
    }

    /// Would a lease of this cost be given now? Nothing is taken. (It does not look at [`SemaphoreBuilder::max_leases`].)
    pub fn peek(&self, key: impl Key, cost: u64) -> Decision {
        let key = self.fingerprint(key);
        self.shard(key).peek(self.caller(), key, saturating_count(cost), None)
    }

    /// The same at a time.
    pub fn peek_at(&self, key: impl Key, cost: u64, now: Time) -> Decision {
        let key = self.fingerprint(key);
        self.shard(key).peek(self.caller(), key, saturating_count(cost), Some(now))
    }

    /// Forgets the key's leases: all of them are void, and those who wait go on.
    pub fn reset(&self, key: impl Key) {
        let key = self.fingerprint(key);
        self.shard(key).reset(self.caller(), key);
    }

    /// Changes the numbers of the running semaphore. Leases stay out and keep their time until they are renewed; with fewer places than are held
    /// nothing remains until enough are back. Those who wait go on by the new numbers.
    ///
    /// # Errors
    /// When the text is not a limit, or another one than `concurrency`. And if it is a semaphore of a
    /// [`LeaseScope`]: make another one of the same scope instead.
    pub fn change(&self, limit: impl IntoLimits) -> Result<(), ChangeError> {
        let (limit, concurrency) = builder::single(limit.into_limits())?;
        if self.inner.scoped.is_some() {
            return Err(ChangeError::OfScope);
        }
        let shards = &self.inner.shards;
        // Two changes at once do not mix: the shards are told under this lock, which nobody else needs to decide.
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

    /// The limit, as it is now.
    pub fn limit(&self) -> Limit {
        self.inner.limit.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What has been decided and what is held. One part of the keys after another is locked for a moment, so ask for this as often as
    /// metrics are read, not with every call.
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

    /// Where a key is. Its first half finds it there, so the shard is found by the second.
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
