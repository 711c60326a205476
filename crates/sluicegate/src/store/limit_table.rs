//! The limits of a store that several limiters share. Each list of limits has a tag, and every slot
//! carries the tag of the limits that wrote its state.
//!
//! Limits are inserted when a limiter first uses them. When tags run short, some are freed and
//! reused: `memory_store/tags.rs` chooses them, and here are the operations on the store.

use super::any_slot::{AnySlot, States};
use super::limit_versions::LimitsByTag;
use super::shares::Share;
use super::{Locked, OnFull, Store};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::algorithm::Debt;
use sluicegate_core::receipts::Receipts;
use sluicegate_core::rollback::Times;
use sluicegate_core::{Algorithm as _, AnyLimit, Span, Time};
use std::mem;
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

    /// Copies all entries but the chosen ones into a table without entries.
    fn copy_to(&self, copy: &mut LimitTable, chosen: &[bool]) {
        for ((entry, copy), chosen) in self.entries.iter().zip(&mut copy.entries).zip(chosen) {
            if let Some(entry) = entry.get().filter(|_| !chosen) {
                *copy = OnceLock::from(entry.clone());
            }
        }
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

    pub(crate) fn on_full(&self) -> OnFull {
        self.on_full
    }

    /// The number of shards.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Adds the debts of a shard's keys to those of their tags. Recovered keys and expired receipts
    /// are dropped.
    pub(crate) fn survey_tags(&self, shard: usize, now: Time, debts: &mut [TagDebt]) {
        let mut shard = self.lock(shard);
        shard.drop_expired_receipts(usize::MAX, now, &self.vacant);
        for slot in shard.table.held() {
            match (shard.debt(slot, now), debts.get_mut(usize::from(shard.table.slot(slot).tag()))) {
                (Some(debt), Some(of_tag)) => of_tag.add(debt),
                _ => self.remove_slot(&mut shard, slot),
            }
        }
        for tag in shard.guarded.receipt_table.iter().flat_map(|open| open.tags()) {
            if let Some(of_tag) = debts.get_mut(usize::from(tag)) {
                of_tag.has_receipts();
            }
        }
    }

    /// Removes the keys and receipts of a shard whose tags are chosen.
    pub(crate) fn remove_tags(&self, shard: usize, chosen: &[bool]) {
        let mut shard = self.lock(shard);
        let is_chosen = |tag: u16| chosen.get(usize::from(tag)) == Some(&true);
        for slot in shard.table.held() {
            if is_chosen(shard.table.slot(slot).tag()) {
                self.remove_slot(&mut shard, slot);
                shard.guarded.counts.evicted += 1;
            }
        }
        shard.void_receipts_of(is_chosen, &self.vacant);
    }

    fn remove_slot(&self, shard: &mut Locked<'_, AnySlot>, slot: usize) {
        shard.clear(slot, &self.vacant);
        self.vacant.keys.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees the entries of the chosen tags, which no slot or receipt needs, and no limiter holds.
    /// Meanwhile no limits may be inserted.
    ///
    /// The shards get another table, so that calls can read the old one in the meantime. `spare` is
    /// reused for it: two tables of 2.6 MB take turns, and memory stays flat.
    pub(crate) fn free_limits(&self, chosen: &[bool], spare: &mut Option<Arc<LimitTable>>) {
        let mut current = self.current.lock();
        let mut table = spare.take().unwrap_or_else(|| Arc::new(LimitTable::new()));
        if let Some(table) = Arc::get_mut(&mut table) {
            current.copy_to(table, chosen);
        }
        for shard in 0..self.shards.len() {
            self.lock(shard).guarded.limits_by_tag = Arc::clone(&table);
        }
        let mut old = mem::replace(&mut *current, table);
        // A call that still reads it keeps it; then the next pass allocates another one.
        if let Some(table) = Arc::get_mut(&mut old) {
            table.entries.iter_mut().for_each(|entry| *entry = OnceLock::new());
            *spare = Some(old);
        }
    }
}

/// What the keys of a tag have used. The tag with the least gives way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TagDebt {
    /// The sum of the debts.
    used: u64,
    /// The time until the last key has recovered.
    recovers_in: Span,
}

impl TagDebt {
    /// No key or receipt needs the tag.
    pub(crate) const NONE: TagDebt = TagDebt { used: 0, recovers_in: Span::ZERO };

    fn add(&mut self, debt: Debt) {
        self.used = self.used.saturating_add(debt.share.max(1));
        self.recovers_in = self.recovers_in.max(debt.recovers_in);
    }

    fn has_receipts(&mut self) {
        self.used = self.used.max(1);
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

    fn limits_of(&self, tag: u16) -> &[AnyLimit] {
        LimitsByTag::<AnySlot>::limits(self, tag)
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

    /// That of the limiter, if the key is in its scope.
    fn tag_to_close(&self, written: u16, limiter: Option<u16>) -> u16 {
        let share = |tag| self.entry(tag).map(|entry| &entry.share).filter(|share| !share.is_untrusted());
        let is_same =
            |tag: &u16| share(written).zip(share(*tag)).is_some_and(|(one, other)| Arc::ptr_eq(one, other));
        limiter.filter(is_same).unwrap_or(written)
    }

    fn adopt(&self, state: &mut States, receipts: &mut Receipts, from: u16, to: u16, times: Times) {
        let (Some(old), Some(new)) = (self.entry(from), self.entry(to)) else { return };
        let states = state.fit(old.limits.len());
        receipts.adopt((&new.limits, &old.limits), states, times, |limit, old, state, times| {
            match new.preserve {
                Preserve::Usage => limit.adopt(old, state, times),
                Preserve::RecoveryTime => limit.adopt_recovery_time(old, state),
            }
        });
        // One state per limit; further limits of a longer list start unseen.
        state.fit(new.limits.len());
    }
}
