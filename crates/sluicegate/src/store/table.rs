//! One place's table: 256 slots that are found by a fingerprint.
//!
//! In plain words: 64 buckets of 4 slots. A fingerprint names two of them, the key's primary and another; the key is in
//! one of the two or nowhere. It goes primary while there is room, and there it has two preferred slots, in one cache line.
//!
//! ```text
//! bucket  [slot][slot][slot][slot]                         two cache lines with slots of 32 bytes
//! slot    [fingerprint and tag | state]                all zeros when free
//! ```
//!
//! ```text
//! Promise    A look-up reads one cache line for most keys, and two buckets at the most: no chain, no probe that grows, no
//!            tombstones. Nothing is ever rehashed: a table has all the slots it will ever have. At most two keys move,
//!            to their other buckets, when a new one finds both of its own full.
//! Room       A place is meant for 192 keys. When a store holds its max_keys, some 6 of 7 keys are at primary and 3 of 4 in a
//!            preferred slot (by simulation), and fewer than 1 in 10 000 finds no room though another could be held, as
//!            tests/it/bounded.rs counts.
//! Threads    Whatever is done is done by whoever holds the place's lock. The words are atomics because the tables lie in
//!            one piece, which no lock owns; relaxed ones, as the lock orders them.
//! ```
//!
//! Why our own: the maps we know move all their keys when they grow (a pause of seconds at ten million), or follow a
//! pointer for each key, or can be neither bounded nor told which key should go. A cache evicts whoever was not seen
//! for longest, which is how an offender gets free. Here the one that makes room is chosen by what it owes, among
//! those around the new key.

use super::NoMemory;
use super::slot_kind::SlotKind;
use crate::key::{Fingerprint, TAG_BITS, tag_of};
use bytemuck::allocation::try_zeroed_slice_box;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place is meant for this many keys: three quarters of its slots. (One under the model checker, so that a few keys
/// have several places.)
pub(super) const KEYS_PER_SHARD: usize = if cfg!(loom) { 1 } else { 192 };
/// How many slots a place has.
pub(super) const SLOTS: usize = BUCKETS * BUCKET;
const BUCKETS: usize = 64;
const BUCKET: usize = 4;
const CACHE_LINE_BYTES: usize = 64;
const CACHE_LINE_WORDS: usize = CACHE_LINE_BYTES / size_of::<AtomicU64>();

/// The tables of all places, in one piece. It is asked for as zeros, which the operating system gives page by page when
/// they are first touched.
pub(super) struct Tables<S> {
    words: Box<[AtomicU64]>,
    /// How many words come before the first slot, so that no slot lies across two cache lines.
    skipped: usize,
    kind: PhantomData<S>,
}

/// One place's table.
pub(super) struct Table<'a, S> {
    words: &'a [AtomicU64],
    kind: PhantomData<S>,
}

pub(super) struct Slot<'a> {
    high: &'a AtomicU64,
    low_and_tag: &'a AtomicU64,
    /// What of the key's state lies here.
    pub(super) state: &'a [AtomicU64],
}

/// Four slots of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bucket(usize);

impl<S: SlotKind> Tables<S> {
    const WORDS_PER_SLOT: usize = 2 + S::STATE_WORDS;
    const WORDS_PER_SHARD: usize = SLOTS * Self::WORDS_PER_SLOT;

    /// # Errors
    /// When there is not so much memory.
    pub(super) fn new(shards: usize) -> Result<Tables<S>, NoMemory> {
        let words =
            shards.checked_mul(Self::WORDS_PER_SHARD).and_then(|words| words.checked_add(CACHE_LINE_WORDS));
        let words: Box<[AtomicU64]> = try_zeroed_slice_box(words.ok_or(NoMemory)?).map_err(|()| NoMemory)?;
        let skipped = words.as_ptr().align_offset(CACHE_LINE_BYTES).min(CACHE_LINE_WORDS);
        Ok(Tables { words, skipped, kind: PhantomData })
    }

    /// The table of a place.
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
    /// The slot that holds the key. Its secondary bucket is only looked at if its primary has displaced.
    pub(super) fn find(self, key: Fingerprint, displaced: Displaced) -> Option<usize> {
        let [primary, secondary] = buckets(key);
        let find_in = |bucket: Bucket| bucket.slots().find(|slot| self.slot(*slot).holds(key));
        find_in(primary).or_else(|| if displaced.includes(primary) { find_in(secondary) } else { None })
    }

    /// Reads a word where the key is likely to be, so that it is in the cache when it is looked for.
    #[inline]
    pub(super) fn touch(self, key: Fingerprint) -> u64 {
        self.slot(preferred(key)).high.load(Ordering::Relaxed)
    }

    /// The slot that holds the key, if it is one of its favourites, as for most. They share a cache line.
    #[inline]
    pub(super) fn find_fast(self, key: Fingerprint) -> Option<usize> {
        let preferred = preferred(key);
        if self.slot(preferred).holds(key) {
            return Some(preferred);
        }
        self.slot(preferred ^ 1).holds(key).then_some(preferred ^ 1)
    }

    /// A free slot for the key: at primary if there is one, and there a preferred.
    pub(super) fn free(self, key: Fingerprint) -> Option<usize> {
        let preferred = preferred(key);
        [preferred, preferred ^ 1]
            .into_iter()
            .find(|slot| !self.is_taken(*slot))
            .or_else(|| buckets(key).into_iter().find_map(|bucket| self.free_in(bucket)))
    }

    /// A free slot of a bucket.
    pub(super) fn free_in(self, bucket: Bucket) -> Option<usize> {
        bucket.slots().find(|slot| !self.is_taken(*slot))
    }

    /// The slots taken anywhere.
    pub(super) fn held(self) -> impl Iterator<Item = usize> + use<'a, S> {
        (0..SLOTS).filter(move |slot| self.is_taken(*slot))
    }

    #[inline]
    pub(super) fn slot(self, slot: usize) -> Slot<'a> {
        let from = slot * Tables::<S>::WORDS_PER_SLOT;
        match &self.words[from..from + Tables::<S>::WORDS_PER_SLOT] {
            [high, low_and_tag, state @ ..] => Slot { high, low_and_tag, state },
            _ => unreachable!("a slot has two words and more"),
        }
    }

    /// Writes a key into a slot that is free. Its state is the caller's to write.
    pub(super) fn put(self, slot: usize, key: Fingerprint, tag: u16) {
        self.slot(slot).high.store(key.high, Ordering::Relaxed);
        self.slot(slot).low_and_tag.store(key.with_tag(tag).low, Ordering::Relaxed);
    }

    /// Frees a slot. Its state is the caller's to clear.
    pub(super) fn clear(self, slot: usize) {
        self.slot(slot).high.store(0, Ordering::Relaxed);
        self.slot(slot).low_and_tag.store(0, Ordering::Relaxed);
    }

    /// Whose slot this is.
    pub(super) fn key(self, slot: usize) -> Fingerprint {
        let Slot { high, low_and_tag, .. } = self.slot(slot);
        Fingerprint {
            high: high.load(Ordering::Relaxed),
            low: low_and_tag.load(Ordering::Relaxed) & !TAG_BITS,
        }
    }

    /// The homes of keys that are in their other bucket.
    pub(super) fn displaced(self) -> Displaced {
        let mut displaced = Displaced::default();
        self.held().for_each(|slot| displaced.note(slot, self.key(slot)));
        displaced
    }

    /// The other bucket of the key in a slot.
    pub(super) fn other_bucket(self, slot: usize) -> Bucket {
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

    /// Which limits wrote the state.
    #[inline]
    pub(super) fn tag(&self) -> u16 {
        tag_of(self.low_and_tag.load(Ordering::Relaxed))
    }

    pub(super) fn set_tag(&self, tag: u16) {
        let low = self.low_and_tag.load(Ordering::Relaxed) & !TAG_BITS;
        self.low_and_tag.store(low | u64::from(tag), Ordering::Relaxed);
    }
}

impl Bucket {
    pub(super) fn slots(self) -> Range<usize> {
        self.0 * BUCKET..(self.0 + 1) * BUCKET
    }

    /// All slots of the table, this bucket's first.
    pub(super) fn all_slots(self) -> impl Iterator<Item = usize> {
        (0..SLOTS).map(move |step| (self.0 * BUCKET + step) % SLOTS)
    }
}

/// A bit for each bucket that may be the primary of a key in another bucket.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Displaced(u64);

impl Displaced {
    /// Takes note of a key that was put into a slot.
    pub(super) fn note(&mut self, slot: usize, key: Fingerprint) {
        let [primary, _] = buckets(key);
        if !primary.slots().contains(&slot) {
            self.0 |= 1 << primary.0;
        }
    }

    fn includes(self, primary: Bucket) -> bool {
        self.0 >> primary.0 & 1 == 1
    }
}

/// The slot where a key is if there was room: in its primary. The next best is beside it.
#[inline]
fn preferred(key: Fingerprint) -> usize {
    // The high bits have chosen the place.
    usize::from(key.high.to_le_bytes()[0])
}

/// The two buckets of a key, its primary first.
pub(super) fn buckets(key: Fingerprint) -> [Bucket; 2] {
    let primary = preferred(key) / BUCKET;
    let step = usize::from(key.high.to_le_bytes()[1]) % (BUCKETS - 1) + 1;
    [Bucket(primary), Bucket((primary + step) % BUCKETS)]
}
