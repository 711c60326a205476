//! How many keys, log entries and receipts each scope may hold in a store that several limiters
//! share.
//!
//! Every scope has a share of each, by weight. The rules below are written for keys, and hold for
//! all three. The scopes of untrusted limits have one share together: a quarter, or everything if
//! there are no others.
//!
//! ```text
//! max_keys   [ scope ][ scope ][ scope, weight 2   ][ untrusted ][ spare ]
//! ```
//!
//! ```text
//! Promise    A scope within its share loses no key to another scope, and finds room for a new key.
//! Lending    Under `OnFull::Evict` a scope may exceed its share while there is room. Its keys are
//!            then the only ones that others evict. Under `OnFull::Deny` nothing is lent.
//! Spare      A new key takes a slot of its own shard, which may hold no key of a borrower. So a
//!            sixteenth of the keys belongs to no share and is not lent: a scope within its share
//!            takes room from this spare part. When all of it is in use, borrowers hold at least as
//!            much, 12 keys per shard on average, and the chance that a shard has none of their keys
//!            is below 1 in 100 000. Only in such a shard does the key with the least debt around
//!            the new one make way, whichever scope it belongs to. In tables of a few keys the
//!            shares are less exact.
//! Threads    Counts are read without a lock. Threads that evict keys of one scope at the same
//!            moment may take it below its share, by less than their number.
//! ```

use super::{OnFull, Size};
use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Ordering};
use sluicegate_core::Time;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Under `OnFull::Evict`, one part in this many is not lent.
const SPARE_PART: usize = 16;
/// Untrusted limits have one part in this many, if there are others.
const UNTRUSTED_PART: usize = 4;
/// The time between two sweeps of a share. Each takes some 50 µs.
const SWEEP_INTERVAL_MICROS: u64 = 1_000;

/// What is divided between the scopes of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pool {
    Keys,
    LogEntries,
    Receipts,
}

/// The number of pools.
const POOLS: usize = 3;

/// The size of a pool.
struct PoolSize {
    /// What belongs to shares: all but the spare part.
    shared: usize,
    spare: usize,
}

impl PoolSize {
    fn new(size: usize, on_full: OnFull) -> PoolSize {
        let spare = if on_full == OnFull::Deny { 0 } else { size / SPARE_PART };
        PoolSize { shared: size - spare, spare }
    }
}

/// The pools of a store, as they are shared.
struct SharedPools {
    sizes: [PoolSize; POOLS],
    /// The sum of the weights of all attached scopes.
    weights: AtomicU64,
    /// `true` once an untrusted limiter has been attached.
    has_untrusted: AtomicBool,
    next_id: AtomicU64,
}

/// The share of one scope, or of all untrusted scopes.
pub(crate) struct Share {
    /// Tells the shares of a store apart.
    pub(crate) id: u64,
    of: Arc<SharedPools>,
    /// `None` for the share of untrusted scopes; 0 while no limiter of the scope is attached.
    weight: Option<AtomicU64>,
    /// How many `Attached` there are. Two only while the last limiter is dropped and the first new
    /// one attached at once; the weight changes under this lock.
    attached: Mutex<usize>,
    held: [AtomicUsize; POOLS],
    /// When the next search for room may start, after one that found none.
    search_at: [AtomicU64; POOLS],
    /// When the next sweep for its recovered keys may start, in microseconds since the epoch.
    sweep_at: AtomicU64,
}

/// Held by every limiter of a scope. The weight of the scope's share counts as long as one of them
/// exists.
pub(crate) struct Attached(Arc<Share>);

impl SharedPools {
    fn new(size: &Size) -> Arc<SharedPools> {
        let Size { max_keys, max_log_entries, max_receipts, on_full } = *size;
        Arc::new(SharedPools {
            // In the order of `Pool`.
            sizes: [max_keys, max_log_entries, max_receipts].map(|size| PoolSize::new(size, on_full)),
            weights: AtomicU64::new(0),
            has_untrusted: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
        })
    }

    /// The share of all untrusted scopes.
    fn untrusted(self: &Arc<SharedPools>) -> Arc<Share> {
        self.share(None)
    }

    /// The share of one scope.
    fn scope(self: &Arc<SharedPools>) -> Arc<Share> {
        self.share(Some(AtomicU64::new(0)))
    }

    fn share(self: &Arc<SharedPools>, weight: Option<AtomicU64>) -> Arc<Share> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Arc::new(Share {
            id,
            of: Arc::clone(self),
            weight,
            attached: Mutex::default(),
            held: Default::default(),
            search_at: Default::default(),
            sweep_at: AtomicU64::new(0),
        })
    }

    fn size(&self, pool: Pool) -> &PoolSize {
        &self.sizes[pool as usize]
    }
}

impl Share {
    fn held(&self, pool: Pool) -> &AtomicUsize {
        &self.held[pool as usize]
    }

    /// What the scope may hold of a pool without borrowing.
    fn max(&self, pool: Pool) -> usize {
        let SharedPools { weights, has_untrusted, .. } = &*self.of;
        let PoolSize { shared, .. } = self.of.size(pool);
        let (weights, part) = (weights.load(Ordering::Relaxed), shared / UNTRUSTED_PART);
        let Some(weight) = &self.weight else {
            return if weights == 0 { *shared } else { part.max(1) };
        };
        let weight = weight.load(Ordering::Relaxed);
        let for_scopes = if has_untrusted.load(Ordering::Relaxed) { shared - part } else { *shared };
        // At most 4 * 10^9, and weights below 2^32: no overflow.
        let max = for_scopes as u64 * weight / weights.max(1);
        usize::try_from(max).unwrap_or(usize::MAX).max(usize::from(weight > 0))
    }

    /// Returns `true` if the scope may hold this much more of a pool without borrowing.
    pub(super) fn has_room(&self, pool: Pool, more: usize) -> bool {
        self.held(pool).load(Ordering::Relaxed).saturating_add(more) <= self.max(pool)
    }

    /// Returns `true` if the scope holds more of a pool than its share.
    pub(super) fn is_exceeded(&self, pool: Pool) -> bool {
        self.excess(pool) > 0
    }

    /// Returns how much more of a pool than its share the scope holds.
    pub(super) fn excess(&self, pool: Pool) -> usize {
        self.held(pool).load(Ordering::Relaxed).saturating_sub(self.max(pool))
    }

    /// Returns `true` if this is the share of all untrusted scopes.
    pub(super) fn is_untrusted(&self) -> bool {
        self.weight.is_none()
    }

    /// When the next search for room in a pool may start.
    pub(super) fn search_at(&self, pool: Pool) -> &AtomicU64 {
        &self.search_at[pool as usize]
    }

    /// Returns `true` if a sweep for recovered keys of the share is due. New keys that find no room
    /// must stay cheap, so most of them do not sweep.
    pub(super) fn is_sweep_due(&self, now: Time) -> bool {
        let (now, at) = (now.as_micros(), self.sweep_at.load(Ordering::Relaxed));
        // If the clock has stepped back, do not wait for longer than the interval.
        let is_due = now >= at || now + SWEEP_INTERVAL_MICROS < at;
        if is_due {
            self.sweep_at.store(now + SWEEP_INTERVAL_MICROS, Ordering::Relaxed);
        }
        is_due
    }

    /// The room of a pool that is not lent.
    pub(super) fn spare(&self, pool: Pool) -> usize {
        self.of.size(pool).spare
    }

    pub(super) fn added(&self, pool: Pool, more: usize) {
        self.held(pool).fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn removed(&self, pool: Pool, fewer: usize) {
        self.held(pool).fetch_sub(fewer, Ordering::Relaxed);
    }

    fn set_weight(&self, new: u64) {
        if let Some(weight) = &self.weight {
            let old = weight.swap(new, Ordering::Relaxed);
            // The added difference wraps around if the weight shrinks, and the sum is exact again
            // afterwards.
            self.of.weights.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
        }
    }
}

impl Attached {
    /// Attaches a limiter to a share that has none, with a weight of 1.
    fn new(share: Arc<Share>) -> Attached {
        let mut attached = share.attached.lock().unwrap_or_else(PoisonError::into_inner);
        *attached += 1;
        if *attached == 1 {
            share.set_weight(1);
        }
        drop(attached);
        if share.weight.is_none() {
            share.of.has_untrusted.store(true, Ordering::Relaxed);
        }
        Attached(share)
    }

    pub(crate) fn share(&self) -> &Arc<Share> {
        &self.0
    }

    /// Changes the weight of the scope's share.
    pub(crate) fn set_weight(&self, weight: u32) {
        self.0.set_weight(weight.into());
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut attached = self.0.attached.lock().unwrap_or_else(PoisonError::into_inner);
        *attached -= 1;
        if *attached == 0 {
            self.0.set_weight(0);
        }
    }
}

/// The shares of a store by scope.
pub(crate) struct Scopes {
    pools: Arc<SharedPools>,
    untrusted: Option<Arc<Attached>>,
    /// Kept while a limiter is attached or limits in the store's table belong to the scope.
    known: HashMap<[u64; 2], (Weak<Attached>, Weak<Share>)>,
    /// When more are known than this, those that are not needed are dropped.
    sweep_at: usize,
}

/// A sweep of the known scopes is due at no fewer than these.
const SWEEP_AT: usize = 64;

impl Scopes {
    pub(crate) fn new(size: &Size) -> Scopes {
        Scopes { pools: SharedPools::new(size), untrusted: None, known: HashMap::new(), sweep_at: SWEEP_AT }
    }

    /// Attaches a limiter of untrusted limits.
    pub(crate) fn attach_untrusted(&mut self) -> Arc<Attached> {
        let pools = &self.pools;
        Arc::clone(self.untrusted.get_or_insert_with(|| Arc::new(Attached::new(pools.untrusted()))))
    }

    /// Attaches a limiter of a scope.
    pub(crate) fn attach(&mut self, scope: Fingerprint) -> Arc<Attached> {
        let id = [scope.high, scope.low];
        let known = self.known.get(&id);
        if let Some(attached) = known.and_then(|(attached, _)| attached.upgrade()) {
            return attached;
        }
        let share = known.and_then(|(_, share)| share.upgrade()).unwrap_or_else(|| self.pools.scope());
        let attached = Arc::new(Attached::new(Arc::clone(&share)));
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, (_, share)| share.strong_count() > 0);
            self.sweep_at = SWEEP_AT.max(2 * self.known.len());
        }
        self.known.insert(id, (Arc::downgrade(&attached), Arc::downgrade(&share)));
        attached
    }
}
