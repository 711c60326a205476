//! The limits of a store that several limiters share. Each list of limits has a tag, and every slot
//! carries the tag of the limits that wrote its state.
//!
//! Limits are inserted when a limiter first uses them, and stay while a limiter or a key's state
//! needs them. When all tags are in use, a pass over the whole store finds those that are not
//! needed any more, and they are reused.

use super::any_slot::{AnySlot, States};
use super::limit_versions::LimitsByTag;
use super::shares::Share;
use super::{Locked, Store, Vacant};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::rollback::Times;
use sluicegate_core::{Algorithm as _, AnyLimit, Time};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// The number of lists of limits that a store can hold: as many as a tag can name. Each takes 40
/// bytes, allocated with the store.
pub(crate) const LIMITS_MAX: u16 = if cfg!(loom) { 4 } else { 65_535 };

/// Limits by tag.
pub(crate) struct LimitTable {
    entries: Box<[OnceLock<TaggedLimits>]>,
}

/// The limits of a tag.
#[derive(Clone)]
pub(crate) struct TaggedLimits {
    pub(crate) limits: Arc<[AnyLimit]>,
    pub(crate) preserve: Preserve,
    pub(crate) share: Arc<Share>,
}

/// What a key keeps when its limits change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Preserve {
    /// Its usage: a bucket keeps its tokens used, a window or log its count.
    #[default]
    Usage,
    /// The time until it is fully recovered, as redis-cell does. For buckets only.
    RecoveryTime,
}

impl LimitTable {
    pub(crate) fn new() -> LimitTable {
        LimitTable { entries: (0..LIMITS_MAX).map(|_| OnceLock::new()).collect() }
    }

    /// A copy of the table with only the retained tags.
    pub(super) fn retaining(&self, retained: impl Fn(u16) -> bool) -> LimitTable {
        let kept = |(entry, tag): (&OnceLock<TaggedLimits>, u16)| match entry.get() {
            Some(entry) if retained(tag) => OnceLock::from(entry.clone()),
            _ => OnceLock::new(),
        };
        LimitTable { entries: self.entries.iter().zip(0..).map(kept).collect() }
    }

    /// The tags in use.
    fn tags(&self) -> impl Iterator<Item = u16> {
        // The entries first: the range would overflow if it were asked for one more.
        self.entries.iter().zip(0..).filter(|(entry, _)| entry.get().is_some()).map(|(_, tag)| tag)
    }

    /// Inserts limits under a free tag.
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
    /// Inserts limits under a free tag.
    pub(crate) fn insert_limits(&self, tag: u16, entry: TaggedLimits) {
        let current = self.current.lock();
        debug_assert!(current.entry(tag).is_none(), "the tag must be free");
        current.insert(tag, entry);
    }

    /// Drops the limits that are not needed: not in `held`, and used neither by a key that has not
    /// recovered nor by a receipt. Returns the tags that are retained. Meanwhile no limits may be
    /// inserted, and no call may use a tag outside `held`.
    pub(crate) fn retain_limits(&self, held: &[u16], now: Time) -> HashSet<u16> {
        let mut retained: HashSet<u16> = held.iter().copied().collect();
        let mut current = self.current.lock();
        for shard in 0..self.shards.len() {
            self.lock(shard).tags_in_use(&mut retained, now, &self.vacant);
        }
        // Most passes of a store under attack find nothing, and a copy takes 2.6 MB.
        if current.tags().all(|tag| retained.contains(&tag)) {
            return retained;
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
    /// Adds the tags that keys and receipts of this shard need. Recovered keys are dropped.
    fn tags_in_use(&mut self, retained: &mut HashSet<u16>, now: Time, vacant: &Vacant) {
        self.drop_expired_receipts(usize::MAX, now, vacant);
        for slot in self.table.held() {
            if self.debt(slot, now).is_some() {
                retained.insert(self.table.slot(slot).tag());
            } else {
                self.clear(slot, vacant);
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
        // Never empty: a limiter holds its tag for as long as it can be called.
        self.entry(tag).map_or(&[], |entry| &entry.limits)
    }

    fn any_limits(&self, tag: u16) -> Arc<[AnyLimit]> {
        self.entry(tag).map_or_else(|| Arc::from([]), |entry| Arc::clone(&entry.limits))
    }

    #[inline]
    fn is_old(&self, _tag: u16) -> bool {
        false
    }

    #[inline]
    fn share(&self, tag: u16) -> Option<&Arc<Share>> {
        self.entry(tag).map(|entry| &entry.share)
    }

    fn adopt(&self, state: &mut States, from: u16, to: u16, times: Times) {
        let (Some(old), Some(new)) = (self.entry(from), self.entry(to)) else { return };
        for ((limit, old), state) in new.limits.iter().zip(&*old.limits).zip(state.fit(old.limits.len())) {
            match new.preserve {
                Preserve::Usage => limit.adopt(old, state, times),
                Preserve::RecoveryTime => limit.adopt_recovery_time(old, state),
            }
        }
        // One state per limit; further limits of a longer list start unseen.
        state.fit(new.limits.len());
    }
}
