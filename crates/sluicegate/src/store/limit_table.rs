//! The limits of a store that several limiters share. Each list of limits has a tag, and every slot
//! carries the tag of the limits that wrote its state.
//!
//! Limits are inserted when a limiter first uses them. When tags run short, some are freed and
//! reused: `memory_store/tags.rs` chooses them, and here are the operations on the store.
//!
//! ```text
//! tag      0 ........................ LIMITS_MAX ............ 65,535
//! names    limits of the whole store  retired limits of one shard
//! ```
//!
//! Retired limits are those of keys that have not called since their limits changed: no limiter
//! has them, and only the keys' conversion needs them. Their tag of the store is freed, and each
//! shard with such keys keeps them under a tag of its own. So nothing about the keys changes.

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
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The number of lists of limits that a store can hold, besides retired ones. Each takes 40 bytes,
/// allocated with the store.
pub(crate) const LIMITS_MAX: u16 = if cfg!(loom) { 4 } else { u16::MAX - RETIRED_MAX + 1 };

/// The number of lists of retired limits that a shard can hold: more than it has slots, as keys
/// without a slot may have receipts. Each takes 40 bytes, allocated when it is needed.
const RETIRED_MAX: u16 = 1_024;

/// Limits by tag.
pub(crate) struct LimitTable {
    /// Those of the store.
    entries: Arc<[OnceLock<TaggedLimits>]>,
    /// Those that only one shard needs. Empty in the table that shards have in common.
    retired: Vec<Option<TaggedLimits>>,
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

/// What becomes of a tag in a pass that frees tags.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Fate {
    /// It is in use.
    #[default]
    Stays,
    /// No limiter has held it since the pass began, so it can be freed.
    Unheld,
    /// It is freed, and no key needs it.
    Unneeded,
    /// It is freed, and its keys and receipts go with it.
    Evicted,
    /// It is freed, and the shards of its keys keep its limits.
    Retired,
}

impl LimitTable {
    pub(crate) fn new() -> LimitTable {
        let entries = (0..LIMITS_MAX).map(|_| OnceLock::new()).collect();
        LimitTable { entries, retired: Vec::new() }
    }

    /// Inserts limits under a free tag.
    fn insert(&self, tag: u16, entry: TaggedLimits) {
        if let Some(free) = self.entries.get(usize::from(tag)) {
            let _ = free.set(entry);
        }
    }

    #[inline]
    fn entry(&self, tag: u16) -> Option<&TaggedLimits> {
        match self.entries.get(usize::from(tag)) {
            Some(entry) => entry.get(),
            None => self.retired.get(retired_index(tag)?)?.as_ref(),
        }
    }

    /// Removes the entries of some tags, unless a call still reads the table. Returns `true` if
    /// they are removed.
    pub(crate) fn clear(self: &mut Arc<Self>, tags: Range<usize>) -> bool {
        let Some(entries) = Arc::get_mut(self).and_then(|table| Arc::get_mut(&mut table.entries)) else {
            return false;
        };
        entries[tags].iter_mut().for_each(|entry| *entry = OnceLock::new());
        true
    }
}

/// The index of retired limits; `None` for a tag of the store.
fn retired_index(tag: u16) -> Option<usize> {
    tag.checked_sub(LIMITS_MAX).map(usize::from)
}

/// A shard's retired limits while more are added.
struct Retiring {
    limits: Vec<Option<TaggedLimits>>,
    /// Their tags in the shard, by their tag in the store.
    tags: HashMap<u16, u16>,
}

impl Retiring {
    /// Begins with the limits that the shard's keys still need.
    fn new(shard: &Locked<'_, AnySlot>) -> Retiring {
        let mut limits = shard.guarded.limits_by_tag.retired.clone();
        if !limits.is_empty() {
            let mut needed = vec![false; limits.len()];
            let of_slots = shard.table.held().map(|slot| shard.table.slot(slot).tag());
            let of_receipts = shard.guarded.receipt_table.iter().flat_map(|open| open.tags());
            for index in of_slots.chain(of_receipts).filter_map(retired_index) {
                needed[index] = true;
            }
            limits.iter_mut().zip(needed).filter(|(_, needed)| !needed).for_each(|(entry, _)| *entry = None);
            limits.truncate(limits.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        }
        Retiring { limits, tags: HashMap::new() }
    }

    /// Returns the tag in the shard for limits that are retired; `None` if there is no room.
    fn tag(&mut self, tag: u16, table: &LimitTable) -> Option<u16> {
        if let Some(known) = self.tags.get(&tag) {
            return Some(*known);
        }
        let entry = table.entry(tag)?.clone();
        let index = self.limits.iter().position(Option::is_none).unwrap_or(self.limits.len());
        let retired = u16::try_from(index).ok().filter(|index| *index < RETIRED_MAX)? + LIMITS_MAX;
        self.limits.resize(self.limits.len().max(index + 1), None);
        self.limits[index] = Some(entry);
        self.tags.insert(tag, retired);
        Some(retired)
    }
}

impl Store<AnySlot> {
    /// Inserts limits under a free tag, also into the table that is about to replace the current
    /// one.
    pub(crate) fn insert_limits(&self, tag: u16, entry: TaggedLimits, next: Option<&LimitTable>) {
        let current = self.current.lock();
        debug_assert!(current.entry(tag).is_none(), "the tag must be free");
        if let Some(next) = next {
            next.insert(tag, entry.clone());
        }
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
            match shard.debt(slot, now) {
                None => self.remove_slot(&mut shard, slot),
                Some(debt) => {
                    if let Some(of_tag) = debts.get_mut(usize::from(shard.table.slot(slot).tag())) {
                        of_tag.add(debt);
                    }
                }
            }
        }
        for tag in shard.guarded.receipt_table.iter().flat_map(|open| open.tags()) {
            if let Some(of_tag) = debts.get_mut(usize::from(tag)) {
                of_tag.has_receipts();
            }
        }
    }

    /// Removes a shard's keys and receipts from tags that are freed: evicts them, or gives them
    /// retired limits. A tag for which the shard has no room stays.
    pub(crate) fn leave_tags(&self, shard: usize, fates: &mut [Fate]) {
        let common = Arc::clone(&*self.current.lock());
        let mut shard = self.lock(shard);
        let mut retiring = Retiring::new(&shard);
        let mut retired = |tag: u16| {
            let fate = fates.get_mut(usize::from(tag)).filter(|fate| **fate == Fate::Retired)?;
            let retired = retiring.tag(tag, &common);
            if retired.is_none() {
                *fate = Fate::Stays;
            }
            retired
        };
        for slot in shard.table.held() {
            if let Some(retired) = retired(shard.table.slot(slot).tag()) {
                shard.table.slot(slot).set_tag(retired);
            }
        }
        // A key's state and receipts have one tag.
        if let Some(open) = &mut shard.guarded.receipt_table {
            open.change_tags(retired);
        }
        let table = match retiring.limits {
            limits if limits.is_empty() => common,
            limits => Arc::new(LimitTable { entries: Arc::clone(&common.entries), retired: limits }),
        };
        shard.guarded.limits_by_tag = table;

        let is_gone = |tag: u16| matches!(fates.get(usize::from(tag)), Some(Fate::Evicted | Fate::Unneeded));
        for slot in shard.table.held() {
            if is_gone(shard.table.slot(slot).tag()) {
                self.remove_slot(&mut shard, slot);
                shard.guarded.counts.evicted += 1;
            }
        }
        shard.void_receipts_of(is_gone, &self.vacant);
    }

    fn remove_slot(&self, shard: &mut Locked<'_, AnySlot>, slot: usize) {
        shard.clear(slot, &self.vacant);
        self.vacant.keys.fetch_add(1, Ordering::Relaxed);
    }

    /// Copies the limits of some tags to the table that is about to replace the current one.
    pub(crate) fn copy_limits(&self, tags: impl Iterator<Item = u16>, next: &LimitTable) {
        let current = Arc::clone(&*self.current.lock());
        for tag in tags {
            if let Some(entry) = current.entry(tag) {
                next.insert(tag, entry.clone());
            }
        }
    }

    /// Gives a shard the next table. It keeps its retired limits.
    pub(crate) fn replace_limits_in(&self, shard: usize, next: &Arc<LimitTable>) {
        let mut shard = self.lock(shard);
        let table = &mut shard.guarded.limits_by_tag;
        *table = match &table.retired {
            retired if retired.is_empty() => Arc::clone(next),
            retired => Arc::new(LimitTable { entries: Arc::clone(&next.entries), retired: retired.clone() }),
        };
    }

    /// Makes the next table the current one, as all shards have it. Returns the previous one.
    pub(crate) fn replace_limits(&self, next: Arc<LimitTable>) -> Arc<LimitTable> {
        std::mem::replace(&mut *self.current.lock(), next)
    }
}

/// What the keys of a tag have used. The tag with the least is evicted.
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
