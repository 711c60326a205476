//! A shard's table: 256 slots, found by fingerprint.
//!
//! The table has 64 buckets of 4 slots. A fingerprint names two of them, the key's primary and
//! secondary bucket; the key is in one of the two or absent. It goes to its primary bucket while
//! that has a free slot, and there first to its two preferred slots, which share a cache line.
//!
//! ```text
//! bucket  [slot][slot][slot][slot]           two cache lines with slots of 32 bytes
//! slot    [fingerprint and tag | state]      all zeros if free
//! ```
//!
//! ```text
//! Promise    A lookup reads one cache line for most keys, and at most two buckets: no chains, no
//!            growing probe sequences, no tombstones. Nothing is ever rehashed: a table has all its
//!            slots from the start. If both buckets of a new key are full, at most two keys move to
//!            their other buckets.
//! Capacity   A shard is sized for 192 keys. In a full store about 6 of 7 keys are in their
//!            primary bucket and 3 of 4 in a preferred slot (by simulation). Fewer than 1 key in
//!            10 000 finds no room although the store could hold it (tests/it/bounded.rs).
//! Threads    Every access happens under the shard's lock. The words are atomics because all tables
//!            are one allocation, which no single lock owns; relaxed, as the lock orders them.
//! ```
//!
//! Why our own table: other maps rehash all keys when they grow (a pause of seconds at ten
//! million), follow a pointer per key, or offer neither a bound nor a choice of the key to evict. A
//! cache evicts the least recently used key, and so forgives an offender. This table evicts by
//! debt, among the keys around the new one.

use super::NoMemory;
use super::slot_kind::SlotKind;
use crate::key::{Fingerprint, TAG_BITS, tag_of};
use bytemuck::allocation::try_zeroed_slice_box;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys per shard: three quarters of its slots. (One under the model checker, so that a few keys
/// have several shards.)
pub(super) const KEYS_PER_SHARD: usize = if cfg!(loom) { 1 } else { 192 };
/// Slots per shard.
pub(super) const SLOTS: usize = BUCKETS * BUCKET;
const BUCKETS: usize = 64;
const BUCKET: usize = 4;
const CACHE_LINE_BYTES: usize = 64;
const CACHE_LINE_WORDS: usize = CACHE_LINE_BYTES / size_of::<AtomicU64>();

/// The tables of all shards, in one allocation. It is requested zeroed, so the operating system
/// supplies its pages when they are first touched.
pub(super) struct Tables<S> {
    words: Box<[AtomicU64]>,
    /// The number of words before the first slot, so that no slot straddles two cache lines.
    skipped: usize,
    kind: PhantomData<S>,
}

/// The table of one shard.
pub(super) struct Table<'a, S> {
    words: &'a [AtomicU64],
    kind: PhantomData<S>,
}

pub(super) struct Slot<'a> {
    high: &'a AtomicU64,
    low_and_tag: &'a AtomicU64,
    /// The part of the key's state that is stored in the slot.
    pub(super) state: &'a [AtomicU64],
}

/// Four adjacent slots of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TableBucket(usize);

impl<S: SlotKind> Tables<S> {
    const WORDS_PER_SLOT: usize = 2 + S::STATE_WORDS;
    const WORDS_PER_SHARD: usize = SLOTS * Self::WORDS_PER_SLOT;

    /// Allocates the tables of `shards` shards.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(super) fn new(shards: usize) -> Result<Tables<S>, NoMemory> {
        let words =
            shards.checked_mul(Self::WORDS_PER_SHARD).and_then(|words| words.checked_add(CACHE_LINE_WORDS));
        let words: Box<[AtomicU64]> = try_zeroed_slice_box(words.ok_or(NoMemory)?).map_err(|()| NoMemory)?;
        let skipped = words.as_ptr().align_offset(CACHE_LINE_BYTES).min(CACHE_LINE_WORDS);
        Ok(Tables { words, skipped, kind: PhantomData })
    }

    /// The table of a shard.
    #[inline]
    pub(super) fn of(&self, shard: usize) -> Table<'_, S> {
        let from = self.skipped + shard * Self::WORDS_PER_SHARD;
        Table { words: &self.words[from..from + Self::WORDS_PER_SHARD], kind: PhantomData }
    }
}

impl<S> Clone for Table<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Table<'_, S> {}

impl<'a, S: SlotKind> Table<'a, S> {
    /// The slot that holds the key. The secondary bucket is searched only if a key of this primary
    /// bucket may have been displaced.
    pub(super) fn find(self, key: Fingerprint, displaced: Displaced) -> Option<usize> {
        let [primary, secondary] = buckets(key);
        let find_in = |bucket: TableBucket| bucket.slots().find(|slot| self.slot(*slot).holds(key));
        find_in(primary).or_else(|| if displaced.includes(primary) { find_in(secondary) } else { None })
    }

    /// Loads a word of the slot where the key most likely is, so that the slot is cached when the
    /// key is looked up.
    #[inline]
    pub(super) fn touch(self, key: Fingerprint) -> u64 {
        self.slot(preferred(key)).high.load(Ordering::Relaxed)
    }

    /// The slot that holds the key, if it is one of its two preferred slots. They share a cache
    /// line.
    #[inline]
    pub(super) fn find_fast(self, key: Fingerprint) -> Option<usize> {
        let preferred = preferred(key);
        if self.slot(preferred).holds(key) {
            return Some(preferred);
        }
        self.slot(preferred ^ 1).holds(key).then_some(preferred ^ 1)
    }

    /// A free slot for the key: a preferred one, else one in the primary bucket, else in the
    /// secondary.
    pub(super) fn free(self, key: Fingerprint) -> Option<usize> {
        let preferred = preferred(key);
        [preferred, preferred ^ 1]
            .into_iter()
            .find(|slot| !self.is_taken(*slot))
            .or_else(|| buckets(key).into_iter().find_map(|bucket| self.free_in(bucket)))
    }

    /// A free slot of a bucket.
    pub(super) fn free_in(self, bucket: TableBucket) -> Option<usize> {
        bucket.slots().find(|slot| !self.is_taken(*slot))
    }

    /// All slots that hold a key.
    pub(super) fn held(self) -> impl Iterator<Item = usize> + use<'a, S> {
        (0..SLOTS).filter(move |slot| self.is_taken(*slot))
    }

    #[inline]
    pub(super) fn slot(self, slot: usize) -> Slot<'a> {
        let from = slot * Tables::<S>::WORDS_PER_SLOT;
        match &self.words[from..from + Tables::<S>::WORDS_PER_SLOT] {
            [high, low_and_tag, state @ ..] => Slot { high, low_and_tag, state },
            _ => unreachable!("a slot has at least two words"),
        }
    }

    /// Writes a key into a free slot. The caller writes the state.
    pub(super) fn put(self, slot: usize, key: Fingerprint, tag: u16) {
        self.slot(slot).high.store(key.high, Ordering::Relaxed);
        self.slot(slot).low_and_tag.store(key.with_tag(tag).low, Ordering::Relaxed);
    }

    /// Frees a slot. The caller clears the state.
    pub(super) fn clear(self, slot: usize) {
        self.slot(slot).high.store(0, Ordering::Relaxed);
        self.slot(slot).low_and_tag.store(0, Ordering::Relaxed);
    }

    /// The key in a slot.
    pub(super) fn key(self, slot: usize) -> Fingerprint {
        let Slot { high, low_and_tag, .. } = self.slot(slot);
        Fingerprint {
            high: high.load(Ordering::Relaxed),
            low: low_and_tag.load(Ordering::Relaxed) & !TAG_BITS,
        }
    }

    /// The primary buckets of keys that are in their secondary bucket.
    pub(super) fn displaced(self) -> Displaced {
        let mut displaced = Displaced::default();
        self.held().for_each(|slot| displaced.note(slot, self.key(slot)));
        displaced
    }

    /// The other bucket of the key in a slot.
    pub(super) fn other_bucket(self, slot: usize) -> TableBucket {
        let [primary, secondary] = buckets(self.key(slot));
        if primary.slots().contains(&slot) { secondary } else { primary }
    }

    pub(super) fn is_taken(self, slot: usize) -> bool {
        self.slot(slot).high.load(Ordering::Relaxed) != 0
    }
}

impl Slot<'_> {
    #[inline]
    fn holds(&self, key: Fingerprint) -> bool {
        let differs = self.low_and_tag.load(Ordering::Relaxed) ^ key.low;
        self.high.load(Ordering::Relaxed) == key.high && differs <= TAG_BITS
    }

    /// The tag of the limits that wrote the state.
    #[inline]
    pub(super) fn tag(&self) -> u16 {
        tag_of(self.low_and_tag.load(Ordering::Relaxed))
    }

    pub(super) fn set_tag(&self, tag: u16) {
        let low = self.low_and_tag.load(Ordering::Relaxed) & !TAG_BITS;
        self.low_and_tag.store(low | u64::from(tag), Ordering::Relaxed);
    }
}

impl TableBucket {
    pub(super) fn slots(self) -> Range<usize> {
        self.0 * BUCKET..(self.0 + 1) * BUCKET
    }

    /// All slots of the table, starting with those of this bucket.
    pub(super) fn all_slots(self) -> impl Iterator<Item = usize> {
        (0..SLOTS).map(move |step| (self.0 * BUCKET + step) % SLOTS)
    }
}

/// One bit per bucket: set if a key of this primary bucket may be in its secondary bucket.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Displaced(u64);

impl Displaced {
    /// Records that a key was written to a slot.
    pub(super) fn note(&mut self, slot: usize, key: Fingerprint) {
        let [primary, _] = buckets(key);
        if !primary.slots().contains(&slot) {
            self.0 |= 1 << primary.0;
        }
    }

    fn includes(self, primary: TableBucket) -> bool {
        self.0 >> primary.0 & 1 == 1
    }
}

/// The slot that a key takes if it is free, in its primary bucket. The second choice is its
/// neighbor.
#[inline]
fn preferred(key: Fingerprint) -> usize {
    // The high bits have chosen the shard.
    usize::from(key.high.to_le_bytes()[0])
}

/// The primary and the secondary bucket of a key.
pub(super) fn buckets(key: Fingerprint) -> [TableBucket; 2] {
    let primary = preferred(key) / BUCKET;
    let step = usize::from(key.high.to_le_bytes()[1]) % (BUCKETS - 1) + 1;
    [TableBucket(primary), TableBucket((primary + step) % BUCKETS)]
}
