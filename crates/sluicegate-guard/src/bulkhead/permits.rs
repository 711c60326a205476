//! The permits of a bulkhead in one atomic word: permits in use, the limit, and whether there are
//! waiters.
//!
//! ```text
//! bits 61..64   permits released, modulo 8
//! bit 60        there are waiters: a release must look at the queue, and no call may overtake it
//! bits 30..60   the limit
//! bits 0..30    permits in use
//! ```
//!
//! Since the whole word is read and written together, taking a permit is one compare-and-swap,
//! releasing it one addition, and no interleaving grants one too many. The waiters bit changes only
//! under the queue's lock.
//!
//! Releases are counted here because a second counter would cost every call a fifth more; every
//! eighth release updates the full count.

use sluicegate::internal::sync::{AtomicU64, Ordering};
use sluicegate_core::bounds::PERMITS_MAX;
use std::sync::atomic::AtomicU64 as Count;

const IN_USE_MASK: u64 = (1 << LIMIT_SHIFT) - 1;
const LIMIT_SHIFT: u32 = 30;
const HAS_WAITERS: u64 = 1 << 60;
const RELEASED_SHIFT: u32 = 61;
/// Releases until the three bits wrap around.
const RELEASED_ROUND: u64 = 1 << (u64::BITS - RELEASED_SHIFT);

// Both 30-bit fields are large enough: permits in use never exceed the limit at the time of the
// grant.
const _: () = assert!((PERMITS_MAX as u64) <= IN_USE_MASK);

/// The permits of one bulkhead.
pub(super) struct Permits {
    word: AtomicU64,
    /// Releases in completed rounds.
    released: Count,
    /// The highest total reported, so that it never decreases.
    results: Count,
}

/// A snapshot of the word.
pub(super) struct Usage {
    pub(super) in_use: u32,
    pub(super) limit: u32,
}

impl Permits {
    pub(super) fn new(limit: u32) -> Permits {
        let word = AtomicU64::new(u64::from(limit) << LIMIT_SHIFT);
        Permits { word, released: Count::new(0), results: Count::new(0) }
    }

    /// Takes a permit if one is free and there is no waiter: the fast path.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        self.take_unless(|word| word & HAS_WAITERS != 0)
    }

    /// Takes a permit for the first waiter, if one is free. Under the queue's lock.
    pub(super) fn try_take_for_waiter(&self) -> bool {
        self.take_unless(|_| false)
    }

    /// Takes a permit or, if none is free, sets the waiters bit in the same operation. Under the
    /// queue's lock.
    pub(super) fn take_or_mark_waiting(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let is_free = has_free(word);
            let next = if is_free { word + 1 } else { word | HAS_WAITERS };
            // Acquire: the next holder sees what the previous one wrote before its release.
            match self.word.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return is_free,
                Err(other) => word = other,
            }
        }
    }

    /// Releases a permit. Returns `true` if there are waiters.
    #[inline]
    pub(super) fn release(&self) -> bool {
        // One fewer in use, never below zero: there is one release per grant. One more released,
        // which wraps at the top of the word. Release: see `take_or_mark_waiting`.
        let before = self.word.fetch_add((1 << RELEASED_SHIFT) - 1, Ordering::Release);
        if before >> RELEASED_SHIFT == RELEASED_ROUND - 1 {
            self.released.fetch_add(RELEASED_ROUND, Ordering::Relaxed);
        }
        before & HAS_WAITERS != 0
    }

    /// Returns the number of permits ever granted.
    pub(super) fn granted(&self) -> u64 {
        let word = self.word.load(Ordering::Relaxed);
        let granted = self.released.load(Ordering::Relaxed) + (word >> RELEASED_SHIFT) + (word & IN_USE_MASK);
        // A completed round may not be counted yet.
        self.results.fetch_max(granted, Ordering::Relaxed).max(granted)
    }

    /// Clears the waiters bit. Under the queue's lock.
    pub(super) fn clear_waiting(&self) {
        if self.word.load(Ordering::Relaxed) & HAS_WAITERS != 0 {
            self.word.fetch_and(!HAS_WAITERS, Ordering::Relaxed);
        }
    }

    /// Returns `true` if there are waiters.
    pub(super) fn has_waiters(&self) -> bool {
        self.word.load(Ordering::Relaxed) & HAS_WAITERS != 0
    }

    /// Sets the limit. Permits in use are not revoked: if they exceed it, none is free until enough
    /// are released.
    pub(super) fn set_limit(&self, limit: u32) {
        let limit = u64::from(limit) << LIMIT_SHIFT;
        let mut word = self.word.load(Ordering::Relaxed);
        while let Err(other) = self.word.compare_exchange_weak(
            word,
            (word & !(IN_USE_MASK << LIMIT_SHIFT)) | limit,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            word = other;
        }
    }

    /// Returns the permits in use and the limit.
    pub(super) fn read(&self) -> Usage {
        let word = self.word.load(Ordering::Relaxed);
        Usage { in_use: narrow(word & IN_USE_MASK), limit: narrow(limit(word)) }
    }

    #[inline]
    fn take_unless(&self, forbidden: impl Fn(u64) -> bool) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while has_free(word) && !forbidden(word) {
            match self.word.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
        false
    }
}

#[inline]
fn has_free(word: u64) -> bool {
    word & IN_USE_MASK < limit(word)
}

#[inline]
fn limit(word: u64) -> u64 {
    word >> LIMIT_SHIFT & IN_USE_MASK
}

/// Never truncated: both fields have 30 bits.
fn narrow(field: u64) -> u32 {
    u32::try_from(field).unwrap_or(u32::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_grant_is_counted_and_the_fields_stay_separate() {
        let permits = Permits::new(PERMITS_MAX);
        for round in 0..100_u64 {
            assert!(permits.try_take() && permits.try_take_for_waiter());
            assert_eq!(permits.granted(), 2 * round + 2);
            assert!(!permits.release() && !permits.release());
            assert_eq!(permits.granted(), 2 * round + 2);
            let Usage { in_use, limit } = permits.read();
            assert_eq!((in_use, limit), (0, PERMITS_MAX), "round {round}");
        }
        permits.set_limit(1);
        assert!(permits.take_or_mark_waiting() && !permits.take_or_mark_waiting() && !permits.try_take());
        permits.set_limit(PERMITS_MAX);
        assert!(!permits.try_take() && permits.try_take_for_waiter());
        assert!(permits.release() && permits.release(), "there is a waiter");
        permits.clear_waiting();
        assert!(permits.try_take() && !permits.release());
        assert_eq!((permits.granted(), permits.read().in_use), (203, 0));
    }
}
