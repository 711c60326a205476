//! A bounded pool that is searched for room shard by shard: log entries and receipts.

use crate::sync::{AtomicUsize, Ordering};
use std::sync::atomic::AtomicU64;

/// The counts of a pool, and where the next search continues.
pub(super) struct SearchedPool {
    pub(super) max: usize,
    pub(super) evicted: AtomicU64,
    pub(super) no_room: AtomicU64,
    /// The shard at which the next search starts.
    next_search: AtomicUsize,
    /// When the next search may start in the store of one limiter.
    pub(super) search_at: AtomicU64,
}

/// The state of a pool.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct PoolStats {
    pub(crate) used: usize,
    pub(crate) max: usize,
    /// Entries that were removed to make room.
    pub(crate) evicted: u64,
    /// Calls for which there was no room.
    pub(crate) no_room: u64,
}

impl SearchedPool {
    pub(super) fn new(max: usize) -> SearchedPool {
        SearchedPool {
            max,
            evicted: AtomicU64::new(0),
            no_room: AtomicU64::new(0),
            next_search: AtomicUsize::new(0),
            search_at: AtomicU64::new(0),
        }
    }

    /// Returns the next shard to search, of `shards`.
    pub(super) fn next_shard(&self, shards: usize) -> usize {
        self.next_search.fetch_add(1, Ordering::Relaxed) % shards
    }

    pub(super) fn stats(&self, left: &AtomicUsize) -> PoolStats {
        PoolStats {
            // A settlement may have exceeded the pool, so that the count of what is left has
            // wrapped.
            used: self.max.wrapping_sub(left.load(Ordering::Relaxed)),
            max: self.max,
            evicted: self.evicted.load(Ordering::Relaxed),
            no_room: self.no_room.load(Ordering::Relaxed),
        }
    }
}
