//! The places of a bulkhead in one word: how many are taken, how many there are, and whether somebody waits for one.
//!
//! ```text
//! bit 63        somebody waits: whoever gives a place back has to look at the queue, and nobody takes one past it
//! bits 31..62   the limit
//! bits 0..31    taken
//! ```
//!
//! All three are read and written together, so that taking a place is one compare-and-swap, giving it back one subtraction, and no
//! order of them admits one too many. The bit is only changed under the lock of the queue.

use crate::sync::{AtomicU64, Ordering};

const TAKEN: u64 = (1 << 31) - 1;
const LIMIT_AT: u32 = 31;
const WAITS: u64 = 1 << 63;

/// The places of one bulkhead.
pub(super) struct Places(AtomicU64);

impl Places {
    pub(super) fn new(limit: u32) -> Places {
        Places(AtomicU64::new(u64::from(limit) << LIMIT_AT))
    }

    /// Takes a place if one is free and nobody waits for it: the way of most calls.
    #[inline]
    pub(super) fn take_if_nobody_waits(&self) -> bool {
        self.take_unless(|word| word & WAITS != 0)
    }

    /// Takes a place if one is free, for the first of those who wait. Under the lock of the queue.
    pub(super) fn take_for_the_first(&self) -> bool {
        self.take_unless(|_| false)
    }

    /// Takes a place; or, if none is free, says from that very moment on that somebody waits. Under the lock of the queue.
    pub(super) fn take_or_wait(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let is_free = has_room(word);
            let next = if is_free { word + 1 } else { word | WAITS };
            // Acquire: whoever gave the place back has written before what the next one may read.
            match self.0.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return is_free,
                Err(other) => word = other,
            }
        }
    }

    /// Gives a place back. Whether somebody waits for it.
    #[inline]
    pub(super) fn give_back(&self) -> bool {
        // Never below zero: there is one of these for each place that was taken. Release: see `take_or_wait`.
        self.0.fetch_sub(1, Ordering::Release) & WAITS != 0
    }

    /// Nobody waits any more. Under the lock of the queue.
    pub(super) fn nobody_waits(&self) {
        if self.0.load(Ordering::Relaxed) & WAITS != 0 {
            self.0.fetch_and(!WAITS, Ordering::Relaxed);
        }
    }

    /// Whether somebody waits.
    pub(super) fn somebody_waits(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WAITS != 0
    }

    /// Another limit. Nobody is thrown out: if more are taken, none is free until enough have been given back.
    pub(super) fn set_limit(&self, limit: u32) {
        let limit = u64::from(limit) << LIMIT_AT;
        let mut word = self.0.load(Ordering::Relaxed);
        while let Err(other) = self.0.compare_exchange_weak(
            word,
            (word & (WAITS | TAKEN)) | limit,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            word = other;
        }
    }

    /// How many are taken, and how many there are.
    pub(super) fn read(&self) -> (u32, u32) {
        let word = self.0.load(Ordering::Relaxed);
        (narrow(word & TAKEN), narrow((word & !WAITS) >> LIMIT_AT))
    }

    #[inline]
    fn take_unless(&self, forbidden: impl Fn(u64) -> bool) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while has_room(word) && !forbidden(word) {
            match self.0.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
        false
    }
}

#[inline]
fn has_room(word: u64) -> bool {
    word & TAKEN < (word & !WAITS) >> LIMIT_AT
}

/// Never cut: both fields have 31 bits.
fn narrow(field: u64) -> u32 {
    u32::try_from(field).unwrap_or(u32::MAX)
}
