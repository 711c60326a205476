//! How many leases a semaphore may still hold, over all its shards.
//!
//! A shard takes room from here for several leases at once and keeps what it does not use, so that most calls touch nothing that all
//! shards share. When there is none left here, what they keep is collected again: the bound is exact.

use crate::sync::{AtomicUsize, Ordering};

/// So many at once are taken from here at the most. More would save nothing that could be measured.
const AT_ONCE_MAX: usize = 64;

pub(super) struct Capacity {
    free: AtomicUsize,
    /// How many a shard takes at once.
    at_once: usize,
}

impl Capacity {
    pub(super) fn new(max_leases: usize, shards: usize) -> Capacity {
        // Shards keep up to twice as many; all of them together no more than half of the room.
        let at_once = (max_leases / (shards * 4)).clamp(1, AT_ONCE_MAX);
        Capacity { free: AtomicUsize::new(max_leases), at_once }
    }

    /// Room for one, and what a shard keeps for later. `None` if there is none.
    #[cold]
    pub(super) fn take(&self) -> Option<usize> {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            let taken = free.min(self.at_once);
            if taken == 0 {
                return None;
            }
            match self.free.compare_exchange(free, free - taken, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(taken - 1),
                Err(now) => free = now,
            }
        }
    }

    /// What a shard keeps too much of comes back.
    #[inline]
    pub(super) fn trim(&self, kept: &mut usize) {
        if *kept > 2 * self.at_once {
            self.give_back(kept, self.at_once);
        }
    }

    /// Whatever a shard keeps comes back. Whether that was anything.
    pub(super) fn collect(&self, kept: &mut usize) -> bool {
        let all = *kept;
        self.give_back(kept, all);
        all > 0
    }

    #[cold]
    fn give_back(&self, kept: &mut usize, some: usize) {
        *kept -= some;
        self.free.fetch_add(some, Ordering::Relaxed);
    }
}
