//! The number of leases that a semaphore may still grant, over all its shards.
//!
//! A shard reserves capacity for several leases at once and keeps what it does not use, so that
//! most calls touch nothing that the shards share. When none is left, the reserves of all shards
//! are collected: the bound is exact.

use crate::sync::{AtomicUsize, Ordering};

/// The maximum that is reserved at once. More saves nothing measurable.
const BATCH_MAX: usize = 64;

pub(super) struct Capacity {
    free: AtomicUsize,
    /// How much a shard reserves at once.
    batch: usize,
}

impl Capacity {
    pub(super) fn new(max_leases: usize, shards: usize) -> Capacity {
        // A shard keeps up to twice as much; all shards together no more than half of the capacity.
        let batch = (max_leases / (shards * 4)).clamp(1, BATCH_MAX);
        Capacity { free: AtomicUsize::new(max_leases), batch }
    }

    /// Reserves capacity for one lease, and returns what the shard has reserved beyond it. `None`
    /// if there is none left.
    #[cold]
    pub(super) fn take(&self) -> Option<usize> {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            let taken = free.min(self.batch);
            if taken == 0 {
                return None;
            }
            match self.free.compare_exchange(free, free - taken, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(taken - 1),
                Err(now) => free = now,
            }
        }
    }

    /// Returns the excess of a shard's reserve.
    #[inline]
    pub(super) fn trim(&self, reserved: &mut usize) {
        if *reserved > 2 * self.batch {
            self.return_some(reserved, self.batch);
        }
    }

    /// Collects a shard's whole reserve. Returns `true` if there was any.
    pub(super) fn collect(&self, reserved: &mut usize) -> bool {
        let all = *reserved;
        self.return_some(reserved, all);
        all > 0
    }

    #[cold]
    fn return_some(&self, reserved: &mut usize, some: usize) {
        *reserved -= some;
        self.free.fetch_add(some, Ordering::Relaxed);
    }
}
