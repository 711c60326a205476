//! The permits of a bulkhead in one word: how many are taken, how many there are, and whether somebody waits for one.
//!
//! ```text
//! bits 61..64   how many were given back, the last three bits of it
//! bit 60        somebody waits: whoever gives a permit back has to look at the queue, and nobody takes one past it
//! bits 30..60   the limit
//! bits 0..30    taken
//! ```
//!
//! All of it is read and written together, so that taking a permit is one compare-and-swap, giving it back one addition, and no
//! order of them admits one too many. The bit is only changed under the lock of the queue.
//!
//! Those given back are counted here as a second word would cost every call a fifth more; each eighth pays for all of them.

use sluicegate::internal::sync::{AtomicU64, Ordering};
use sluicegate_core::bounds::COUNT_MAX;
use std::sync::atomic::AtomicU64 as Count;

const IN_USE_MASK: u64 = (1 << LIMIT_SHIFT) - 1;
const LIMIT_SHIFT: u32 = 30;
const HAS_WAITERS: u64 = 1 << 60;
const RELEASED_SHIFT: u32 = 61;
/// So many are given back until those bits begin anew.
const RELEASED_ROUND: u64 = 1 << (u64::BITS - RELEASED_SHIFT);

// The limit has room, and so has what is taken: never more than the limit at that moment.
const _: () = assert!((COUNT_MAX as u64) <= IN_USE_MASK);

/// The permits of one bulkhead.
pub(super) struct Permits {
    word: AtomicU64,
    /// How many were given back in the rounds before.
    released: Count,
    /// The most that anybody was told was given: it never becomes less.
    results: Count,
}

/// What there is to see of permits.
pub(super) struct Usage {
    pub(super) in_use: u32,
    pub(super) limit: u32,
}

impl Permits {
    pub(super) fn new(limit: u32) -> Permits {
        let word = AtomicU64::new(u64::from(limit) << LIMIT_SHIFT);
        Permits { word, released: Count::new(0), results: Count::new(0) }
    }

    /// Takes a permit if one is free and nobody waits for it: the way of most calls.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        self.take_unless(|word| word & HAS_WAITERS != 0)
    }

    /// Takes a permit if one is free, for the first of those who wait. Under the lock of the queue.
    pub(super) fn try_take_for_waiter(&self) -> bool {
        self.take_unless(|_| false)
    }

    /// Takes a permit; or, if none is free, says from that very moment on that somebody waits. Under the lock of the queue.
    pub(super) fn take_or_mark_waiting(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let is_free = has_free(word);
            let next = if is_free { word + 1 } else { word | HAS_WAITERS };
            // Acquire: whoever gave the permit back has written before what the next one may read.
            match self.word.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return is_free,
                Err(other) => word = other,
            }
        }
    }

    /// Gives a permit back. Whether somebody waits for it.
    #[inline]
    pub(super) fn release(&self) -> bool {
        // One less taken, never below zero: there is one of these for each permit that was taken. One more ended, which leaves the word at
        // its upper end. Release: see `take_or_wait`.
        let before = self.word.fetch_add((1 << RELEASED_SHIFT) - 1, Ordering::Release);
        if before >> RELEASED_SHIFT == RELEASED_ROUND - 1 {
            self.released.fetch_add(RELEASED_ROUND, Ordering::Relaxed);
        }
        before & HAS_WAITERS != 0
    }

    /// How many were ever taken.
    pub(super) fn granted(&self) -> u64 {
        let word = self.word.load(Ordering::Relaxed);
        let granted = self.released.load(Ordering::Relaxed) + (word >> RELEASED_SHIFT) + (word & IN_USE_MASK);
        // A round may have ended that is not counted yet.
        self.results.fetch_max(granted, Ordering::Relaxed).max(granted)
    }

    /// Nobody waits any more. Under the lock of the queue.
    pub(super) fn clear_waiting(&self) {
        if self.word.load(Ordering::Relaxed) & HAS_WAITERS != 0 {
            self.word.fetch_and(!HAS_WAITERS, Ordering::Relaxed);
        }
    }

    /// Whether somebody waits.
    pub(super) fn has_waiters(&self) -> bool {
        self.word.load(Ordering::Relaxed) & HAS_WAITERS != 0
    }

    /// Another limit. Nobody is thrown out: if more are taken, none is free until enough have been given back.
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

    /// How many are taken, and how many there are.
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

/// Never cut: both fields have 30 bits.
fn narrow(field: u64) -> u32 {
    u32::try_from(field).unwrap_or(u32::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_given_is_counted_and_nothing_else_of_the_word_changes() {
        let permits = Permits::new(COUNT_MAX);
        for round in 0..100_u64 {
            assert!(permits.try_take() && permits.try_take_for_waiter());
            assert_eq!(permits.granted(), 2 * round + 2);
            assert!(!permits.release() && !permits.release());
            assert_eq!(permits.granted(), 2 * round + 2);
            let Usage { in_use, limit } = permits.read();
            assert_eq!((in_use, limit), (0, COUNT_MAX), "round {round}");
        }
        permits.set_limit(1);
        assert!(permits.take_or_mark_waiting() && !permits.take_or_mark_waiting() && !permits.try_take());
        permits.set_limit(COUNT_MAX);
        assert!(!permits.try_take() && permits.try_take_for_waiter());
        assert!(permits.release() && permits.release(), "somebody waits");
        permits.clear_waiting();
        assert!(permits.try_take() && !permits.release());
        assert_eq!((permits.granted(), permits.read().in_use), (203, 0));
    }
}
