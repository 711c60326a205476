//! One place's table: 256 slots that are found by a fingerprint.
//!
//! In plain words: 16 groups of 16 slots. A fingerprint names two of the groups, and its key is in one of them or
//! nowhere. In the first it also names two slots that share a cache line, its home: most keys are there. For the
//! others a byte for each slot, the tag, tells which are worth a look.
//!
//! ```text
//! tags    ┌ 16 bytes ┐┌ 16 bytes ┐ ... 16 groups           0 = free, else 128 + 7 bits of the fingerprint
//! slots   [fingerprint and version | state] ...            32 bytes with a state of 16
//! ```
//!
//! ```text
//! Promise    A look-up reads one cache line for most keys, and at most two groups' tags and (but for a chance of 1 in
//!            8) one slot for the rest: no chain, no probe that grows, no tombstones. Nothing moves, and nothing is ever
//!            rehashed: a table has all the slots it will ever have.
//! Room       A place is meant for 192 keys. With two groups to choose from, fewer than 1 key in 10 000 finds both full
//!            when a store holds its max_keys, as tests/it/bounded.rs counts.
//! Threads    Words are atomics, so that a caller can bid for their cache lines before it has the lock, when it is too
//!            early to believe them. All else is done by whoever holds the place's lock.
//! ```
//!
//! Why our own: the maps we know move all their keys when they grow (a pause of seconds at ten million), or follow a
//! pointer for each key, or can be neither bounded nor told which key should go. A cache evicts whoever was not seen
//! for longest, which is how an offender gets free. Here the one that makes room is chosen by what it owes, among
//! those around the new key.

use super::shape::Shape;
use crate::key::Fingerprint;
use std::array;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place is meant for this many keys: three quarters of its slots. (One under the model checker, so that a few keys
/// have several places.)
pub(super) const KEYS_A_PLACE: usize = if cfg!(loom) { 1 } else { 192 };
/// How many slots a place has.
pub(super) const SLOTS: usize = GROUPS * GROUP;
const GROUPS: usize = 16;
const GROUP: usize = 16;
/// So many slots around a key's home are looked at first when somebody has to make room: four cache lines.
const NEAREST: usize = 8;
/// A group with no more free slots than this lets a new key go to its other group.
const NEARLY_FULL: u32 = 3;
/// Set in the tag of a slot that is taken.
const TAKEN: u8 = 0x80;
/// The byte of a slot's fingerprint that holds the version of its rules instead. What stood there is in the tag.
const VERSION_BITS: u64 = 0xff;

/// The tags first, so that those of all groups are four cache lines in a row.
#[repr(C, align(64))]
pub(super) struct Table<S: Shape> {
    tags: [Tags; GROUPS],
    slots: [Slot<S>; SLOTS],
}

/// The order of the words does not matter: nobody believes them without the lock.
#[repr(C)]
pub(super) struct Slot<S: Shape> {
    high: AtomicU64,
    low_and_version: AtomicU64,
    pub(super) inline: S::Inline,
}

/// The tags of a group, a byte each.
#[derive(Default)]
struct Tags([AtomicU64; 2]);

impl<S: Shape> Default for Table<S> {
    fn default() -> Self {
        let slot = |_| Slot {
            high: AtomicU64::new(0),
            low_and_version: AtomicU64::new(0),
            inline: S::Inline::default(),
        };
        Table { tags: array::from_fn(|_| Tags::default()), slots: array::from_fn(slot) }
    }
}

impl<S: Shape> Table<S> {
    /// The slot that holds the key.
    pub(super) fn find(&self, key: Fingerprint) -> Option<usize> {
        self.find_at_home(key).or_else(|| self.find_elsewhere(key))
    }

    /// The slot that holds the key, if it is at home, as most are.
    #[inline]
    pub(super) fn find_at_home(&self, key: Fingerprint) -> Option<usize> {
        let home = home(key);
        if self.slots[home].holds(key) {
            return Some(home);
        }
        self.slots[home ^ 1].holds(key).then_some(home ^ 1)
    }

    fn find_elsewhere(&self, key: Fingerprint) -> Option<usize> {
        let tag = tag(key);
        groups(key).into_iter().find_map(|group| {
            let alike = self.tags[group].alike(tag).map(|place| group * GROUP + place);
            alike.into_iter().find(|slot| self.slots[*slot].holds(key))
        })
    }

    /// A free slot for the key: in its first group unless that is nearly full, then in the emptier one; there its
    /// home if that is free. So most keys are found at the first look, and yet few find both groups full.
    pub(super) fn free(&self, key: Fingerprint) -> Option<usize> {
        let groups = groups(key);
        let [first, second] = groups.map(|group| self.tags[group].alike(0));
        let (group, free) = if first.number() > NEARLY_FULL || first.number() >= second.number() {
            (groups[0], first)
        } else {
            (groups[1], second)
        };
        let slots = || free.clone().map(|place| group * GROUP + place);
        let home = home(key);
        slots()
            .find(|slot| *slot == home)
            .or_else(|| slots().find(|slot| *slot == home ^ 1))
            .or_else(|| slots().next())
    }

    /// The slots taken around the key's home: half of its first group. Their cache lines are asked for all at once.
    pub(super) fn nearest(&self, key: Fingerprint) -> impl Iterator<Item = usize> + '_ {
        let from = home(key) / NEAREST * NEAREST;
        for slot in (from..from + NEAREST).step_by(2) {
            black_box(self.slots[slot].high.load(Ordering::Relaxed));
        }
        (from..from + NEAREST).filter(|slot| self.is_taken(*slot))
    }

    /// The slots taken in one of the two groups of a key.
    pub(super) fn near(&self, key: Fingerprint) -> impl Iterator<Item = usize> + '_ {
        let slots = groups(key).into_iter().flat_map(|group| group * GROUP..(group + 1) * GROUP);
        slots.filter(|slot| self.is_taken(*slot))
    }

    /// The slots taken anywhere.
    pub(super) fn held(&self) -> impl Iterator<Item = usize> + '_ {
        (0..SLOTS).filter(|slot| self.is_taken(*slot))
    }

    #[inline]
    pub(super) fn slot(&self, slot: usize) -> &Slot<S> {
        &self.slots[slot]
    }

    /// Writes a key into a slot that is free. Its state is the caller's to write.
    pub(super) fn put(&self, slot: usize, key: Fingerprint, version: u8) {
        self.tags[slot / GROUP].set(slot % GROUP, tag(key));
        self.slots[slot].high.store(key.high, Ordering::Relaxed);
        self.slots[slot]
            .low_and_version
            .store(key.low & !VERSION_BITS | u64::from(version), Ordering::Relaxed);
    }

    /// Frees a slot.
    pub(super) fn clear(&self, slot: usize) {
        self.tags[slot / GROUP].set(slot % GROUP, 0);
        self.slots[slot].high.store(0, Ordering::Relaxed);
        self.slots[slot].low_and_version.store(0, Ordering::Relaxed);
    }

    /// Whose slot this is.
    pub(super) fn key(&self, slot: usize) -> Fingerprint {
        let Slot { high, low_and_version, .. } = &self.slots[slot];
        let low = low_and_version.load(Ordering::Relaxed) & !VERSION_BITS;
        let tag = self.tags[slot / GROUP].get(slot % GROUP) & !TAKEN;
        Fingerprint { high: high.load(Ordering::Relaxed), low: low | u64::from(tag) }
    }

    fn is_taken(&self, slot: usize) -> bool {
        self.tags[slot / GROUP].get(slot % GROUP) != 0
    }
}

impl<S: Shape> Slot<S> {
    #[inline]
    fn holds(&self, key: Fingerprint) -> bool {
        let differs = self.low_and_version.load(Ordering::Relaxed) ^ key.low;
        self.high.load(Ordering::Relaxed) == key.high && differs <= VERSION_BITS
    }

    /// The version of the rules that wrote the state.
    #[inline]
    pub(super) fn version(&self) -> u8 {
        self.low_and_version.load(Ordering::Relaxed).to_le_bytes()[0]
    }

    pub(super) fn set_version(&self, version: u8) {
        let low = self.low_and_version.load(Ordering::Relaxed) & !VERSION_BITS;
        self.low_and_version.store(low | u64::from(version), Ordering::Relaxed);
    }
}

impl Tags {
    fn get(&self, place: usize) -> u8 {
        self.0[place / 8].load(Ordering::Relaxed).to_le_bytes()[place % 8]
    }

    fn set(&self, place: usize, tag: u8) {
        let mut bytes = self.0[place / 8].load(Ordering::Relaxed).to_le_bytes();
        bytes[place % 8] = tag;
        self.0[place / 8].store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }

    /// The places that have a tag, and perhaps some that only seem to: a carry can make a byte after a true one look
    /// alike. For free slots that cannot be, as every other tag has its top bit set.
    fn alike(&self, tag: u8) -> Alike {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const TOPS: u64 = 0x8080_8080_8080_8080;
        let zero_bytes = |word: &AtomicU64| {
            let differs = word.load(Ordering::Relaxed) ^ (ONES * u64::from(tag));
            differs.wrapping_sub(ONES) & !differs & TOPS
        };
        Alike(self.0.each_ref().map(zero_bytes))
    }
}

/// A bit for each place that is alike, at the top of its byte.
#[derive(Clone)]
struct Alike([u64; 2]);

impl Alike {
    fn number(&self) -> u32 {
        self.0[0].count_ones() + self.0[1].count_ones()
    }
}

impl Iterator for Alike {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let half = usize::from(self.0[0] == 0);
        let bits = &mut self.0[half];
        if *bits == 0 {
            return None;
        }
        let place = half * 8 + bits.trailing_zeros() as usize / 8;
        *bits &= *bits - 1;
        Some(place)
    }
}

fn tag(key: Fingerprint) -> u8 {
    TAKEN | key.low.to_le_bytes()[0]
}

/// The slot where a key should be if it can: in its first group.
#[inline]
fn home(key: Fingerprint) -> usize {
    // The high bits have chosen the place.
    usize::from(key.high.to_le_bytes()[0])
}

/// The two groups of a key, always different ones.
fn groups(key: Fingerprint) -> [usize; 2] {
    let first = home(key) / GROUP;
    let step = usize::from(key.high.to_le_bytes()[1]) % (GROUPS - 1) + 1;
    [first, (first + step) % GROUPS]
}
