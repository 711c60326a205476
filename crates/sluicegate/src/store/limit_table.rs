//! The limits of a store that many limiters share: each has a number, which is the tag of the states that it writes.
//!
//! A limit is entered when a limiter first brings it, and stays while a limiter or a key's state needs it. When all numbers
//! are taken, those that nobody needs are found by looking through the whole store, and given out again.

use super::any_slot::{AnySlot, States};
use super::limit_versions::LimitsByTag;
use super::{Locked, Store, Vacant};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::pile::Times;
use sluicegate_core::{Algorithm as _, AnyLimit, Time};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// How many different lists of limits a store knows at once: all that a tag can name. Each takes 32 bytes, which are taken when
/// the store is made.
pub(crate) const LIMITS_MAX: u16 = if cfg!(loom) { 4 } else { 65_535 };

/// Limits by their tags.
pub(crate) struct LimitTable {
    entries: Box<[OnceLock<TaggedLimits>]>,
}

/// What is known of a tag.
#[derive(Clone)]
pub(crate) struct TaggedLimits {
    pub(crate) limits: Arc<[AnyLimit]>,
    pub(crate) preserve: Preserve,
}

/// What a key keeps when other limits are to judge it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Preserve {
    /// What it has used: a bucket its tokens, a window or log its count.
    #[default]
    Usage,
    /// The time until it is as good as new, as redis-cell does. For buckets.
    RecoveryTime,
}

impl LimitTable {
    pub(crate) fn new() -> LimitTable {
        LimitTable { entries: (0..LIMITS_MAX).map(|_| OnceLock::new()).collect() }
    }

    /// The same book without the entries that are not to stay.
    pub(super) fn retaining(&self, retained: impl Fn(u16) -> bool) -> LimitTable {
        let kept = |(tag, entry): (u16, &OnceLock<TaggedLimits>)| match entry.get() {
            Some(entry) if retained(tag) => OnceLock::from(entry.clone()),
            _ => OnceLock::new(),
        };
        LimitTable { entries: (0..).zip(&self.entries).map(kept).collect() }
    }

    /// Enters limits under a tag that is free.
    fn insert(&self, tag: u16, entry: TaggedLimits) {
        if let Some(free) = self.entries.get(usize::from(tag)) {
            let _ = free.set(entry);
        }
    }

    #[inline]
    fn entry(&self, tag: u16) -> Option<&TaggedLimits> {
        self.entries.get(usize::from(tag))?.get()
    }
}

impl Store<AnySlot> {
    /// Enters limits under a tag that is free.
    pub(crate) fn insert_limits(&self, tag: u16, entry: TaggedLimits) {
        let current = self.current.lock();
        debug_assert!(current.entry(tag).is_none(), "the tag is free");
        current.insert(tag, entry);
    }

    /// Forgets the limits that nobody needs: not among the tags held, of no key that has not recovered, and of no receipt.
    /// Says which stay. Meanwhile nobody may enter limits, or ask by others than those held.
    pub(crate) fn retain_limits(&self, held: &[u16], now: Time) -> HashSet<u16> {
        let mut retained: HashSet<u16> = held.iter().copied().collect();
        let mut current = self.current.lock();
        for shard in 0..self.shards.len() {
            self.lock(shard).tags_in_use(&mut retained, now, &self.vacant);
        }
        let table = Arc::new(current.retaining(|tag| retained.contains(&tag)));
        for shard in 0..self.shards.len() {
            self.lock(shard).guarded.limits_by_tag = Arc::clone(&table);
        }
        *current = table;
        retained
    }
}

impl Locked<'_, AnySlot> {
    /// Adds the tags that keys and receipts here need. Keys that have recovered are let go.
    fn tags_in_use(&mut self, retained: &mut HashSet<u16>, now: Time, vacant: &Vacant) {
        self.sweep_receipts(now, vacant);
        for slot in self.table.held() {
            if self.debt(slot, now).is_some() {
                retained.insert(self.table.slot(slot).tag());
            } else {
                self.clear(slot);
                vacant.keys.fetch_add(1, Ordering::Relaxed);
            }
        }
        if let Some(receipt_table) = &self.guarded.receipt_table {
            retained.extend(receipt_table.tags());
        }
    }
}

impl LimitsByTag<AnySlot> for LimitTable {
    #[inline]
    fn tag_for(&self, key: Fingerprint) -> u16 {
        key.tag()
    }

    #[inline]
    fn limits(&self, tag: u16) -> &[AnyLimit] {
        // There is one: a limiter holds its tag for as long as it can ask.
        self.entry(tag).map_or(&[], |entry| &entry.limits)
    }

    fn any_limits(&self, tag: u16) -> Arc<[AnyLimit]> {
        self.entry(tag).map_or_else(|| Arc::from([]), |entry| Arc::clone(&entry.limits))
    }

    #[inline]
    fn is_old(&self, _tag: u16) -> bool {
        false
    }

    fn adopt(&self, state: &mut States, from: u16, to: u16, times: Times) {
        let (Some(old), Some(new)) = (self.entry(from), self.entry(to)) else { return };
        for ((limit, old), state) in new.limits.iter().zip(&*old.limits).zip(state.fit(old.limits.len())) {
            match new.preserve {
                Preserve::Usage => limit.adopt(old, state, times),
                Preserve::RecoveryTime => limit.adopt_time(old, state),
            }
        }
        // A state for each limit; those of a longer list start afresh.
        state.fit(new.limits.len());
    }
}
