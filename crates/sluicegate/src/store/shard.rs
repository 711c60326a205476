//! A shard: about 192 keys, the lock that protects them, and the operations that need the lock.
//!
//! The lock protects the shard's slots in [`Table`] and everything in [`Guarded`]: counts,
//! receipts, and the state that does not fit into slots. Operations take `now` as an argument, call
//! no user code and wait for nothing, so the lock is held for about 20 ns, or for a few
//! microseconds if room has to be made for a new key.

use super::limit_versions::LimitsByTag as _;
use super::receipt_table::{KeyReceipts, ReceiptTable};
use super::shares::{Pool, Share};
use super::slot_kind::{SlotKind, SlotState, StateOf};
use super::table::{Displaced, Table};
use super::{Full, NoMemory, Vacant};
use crate::key::Fingerprint;
use crate::sync::{Guard, Lock, Ordering};
use sluicegate_core::algorithm::{Charged, Verb};
use sluicegate_core::receipts::Receipts;
use sluicegate_core::rollback::Times;
use sluicegate_core::verbs::{Unsupported, Verbs as _};
use sluicegate_core::{Decision, FullPool, Time};
use std::mem;
use std::sync::Arc;

/// A lock, and what it protects besides the shard's slots.
#[repr(align(64))]
pub(super) struct Shard<S: SlotKind>(pub(super) Lock<Guarded<S>>);

/// What a shard's lock protects besides its slots. The fields that a check needs come first, to
/// share a cache line with the lock.
#[repr(C)]
pub(super) struct Guarded<S: SlotKind> {
    pub(super) limits_by_tag: Arc<S::Limits>,
    /// The latest time that the shard has seen.
    pub(super) latest: Time,
    /// `None` while the shard has no open receipt, which is nearly always.
    pub(super) receipt_table: Option<Box<ReceiptTable>>,
    /// How often a charge was returned because its receipt expired.
    pub(super) returns: u64,
    /// The primary buckets of keys that may be in their secondary bucket.
    pub(super) displaced: Displaced,
    pub(super) counts: StoreCounts,
    /// Unless UTC steps, no key of the shard recovers before this time, so until then it is
    /// pointless to search for a recovered key.
    pub(super) none_recovers_before: Time,
    pub(super) side_table: S::SideTable,
}

/// A locked shard. Its table must be used only through this type; the compiler does not check that,
/// because the table's words are atomics.
pub(super) struct Locked<'a, S: SlotKind> {
    pub(super) guarded: Guard<'a, Guarded<S>>,
    pub(super) table: Table<'a, S>,
}

/// Decisions and evictions of a shard.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct StoreCounts {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) evicted: u64,
    pub(crate) no_room: u64,
}

impl<S: SlotKind> Shard<S> {
    pub(super) fn many(number: usize, limits_by_tag: &Arc<S::Limits>) -> Result<Box<[Shard<S>]>, NoMemory> {
        let mut shards = Vec::new();
        shards.try_reserve_exact(number).map_err(|_| NoMemory)?;
        shards.extend((0..number).map(|_| Shard::new(limits_by_tag)));
        Ok(shards.into_boxed_slice())
    }

    pub(super) fn new(limits_by_tag: &Arc<S::Limits>) -> Shard<S> {
        Shard(Lock::new(Guarded {
            limits_by_tag: Arc::clone(limits_by_tag),
            latest: Time::EPOCH,
            receipt_table: None,
            returns: 0,
            displaced: Displaced::default(),
            counts: StoreCounts::default(),
            none_recovers_before: Time::EPOCH,
            side_table: S::SideTable::default(),
        }))
    }
}

impl<S: SlotKind> Locked<'_, S> {
    /// The fast path of nearly every call: the key's state is up to date, the shard has no
    /// receipts, and the call is allowed. Otherwise nothing changes.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    pub(super) fn try_charge(
        &mut self,
        slot: usize,
        key: Fingerprint,
        cost: u64,
        now: Time,
    ) -> Option<Charged> {
        let Guarded { limits_by_tag, latest, receipt_table, counts, side_table, .. } = &mut *self.guarded;
        let found = self.table.slot(slot);
        let tag = limits_by_tag.tag_for(key);
        if found.tag() == tag
            && receipt_table.is_none()
            && let Ok(charged) = S::try_charge(
                SlotState { words: found.state, side_table, slot },
                limits_by_tag.limits(tag),
                now,
                cost,
            )
        {
            *latest = now.max(*latest);
            counts.allowed += 1;
            return Some(charged);
        }
        None
    }

    /// Returns a copy of a key's state as it would be if the key were changed now: without the
    /// charges that expired receipts return, and converted to its current limits. The stored state
    /// stays as it is: only an operation that may change the key does that.
    pub(super) fn copy(&mut self, key: Fingerprint, now: Time) -> S::State {
        let Some(slot) = self.find(key) else { return S::State::default() };
        let mut copy = S::read(self.state_of(slot), Clone::clone);
        let Guarded { limits_by_tag, receipt_table, .. } = &*self.guarded;
        let (from, tag) = (self.table.slot(slot).tag(), limits_by_tag.tag_for(key));
        if let Some(expired) = receipt_table.as_ref().and_then(|open| open.with_expired(key, now)) {
            let limits = limits_by_tag.limits_of(from);
            expired.clone().expire(limits, S::states_mut(&mut copy, limits.len()), now);
        }
        if from != tag {
            let times = Times { now, latest: self.guarded.latest };
            limits_by_tag.adopt(&mut copy, &mut Receipts::default(), from, tag, times);
        }
        copy
    }

    /// Runs an operation on the states of a slot, which must be up to date.
    #[inline]
    pub(super) fn with_slot<R>(
        &mut self,
        slot: usize,
        act: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        let Guarded { limits_by_tag, side_table, .. } = &mut *self.guarded;
        let found = self.table.slot(slot);
        let limits = limits_by_tag.limits(found.tag());
        let kept = SlotState { words: found.state, side_table, slot };
        S::update(kept, |state| act(limits, S::states_mut(state, limits.len())))
    }

    /// The slot that holds the key.
    pub(super) fn find(&self, key: Fingerprint) -> Option<usize> {
        self.table.find(key, self.guarded.displaced)
    }

    /// Writes a key into a free slot. The caller writes the state.
    pub(super) fn put(&mut self, slot: usize, key: Fingerprint, tag: u16) {
        self.guarded.displaced.note(slot, key);
        self.table.put(slot, key, tag);
    }

    /// The state of a slot.
    pub(super) fn state_of(&mut self, slot: usize) -> SlotState<'_, S> {
        SlotState { words: self.table.slot(slot).state, side_table: &mut self.guarded.side_table, slot }
    }

    /// Counts and returns the denial of a call that found no room.
    pub(super) fn denial(&mut self, full: Full, key: Fingerprint) -> Decision {
        // The pool of log entries counts its own.
        self.guarded.counts.no_room += u64::from(full.pool == FullPool::Keys);
        let limits_by_tag = &self.guarded.limits_by_tag;
        full.denial(limits_by_tag.limits(limits_by_tag.tag_for(key)))
    }

    /// Frees a slot.
    pub(super) fn clear(&mut self, slot: usize, vacant: &Vacant) {
        let entries = self.log_capacity(slot);
        self.log_entries_changed(slot, entries, 0, vacant);
        if let Some(share) = self.share_of(slot) {
            share.removed(Pool::Keys, 1);
        }
        self.table.clear(slot);
        S::update(self.state_of(slot), mem::take);
    }

    /// The share of the key in a slot.
    #[inline]
    pub(super) fn share_of(&self, slot: usize) -> Option<&Arc<Share>> {
        self.guarded.limits_by_tag.share(self.table.slot(slot).tag())
    }

    /// Returns `true` if a slot's state was written by an older version of the limits.
    #[inline]
    pub(super) fn is_old(&self, slot: usize) -> bool {
        self.guarded.limits_by_tag.is_old(self.table.slot(slot).tag())
    }

    /// Closes the key's receipts that have expired. Then converts the slot's state, and the
    /// receipts, to the key's current limits if other limits wrote them.
    #[inline]
    pub(super) fn bring_up_to_date(&mut self, slot: usize, key: Fingerprint, now: Time, vacant: &Vacant) {
        self.guarded.latest = now.max(self.guarded.latest);
        self.expire_receipts(Some(slot), key, now, vacant);
        let tag = self.guarded.limits_by_tag.tag_for(key);
        if self.table.slot(slot).tag() != tag {
            self.adopt(slot, tag, now, vacant);
        }
    }

    /// Checks that the key's current limits support a verb.
    pub(super) fn require(&self, key: Fingerprint, verb: Verb) -> Result<(), Unsupported> {
        let limits_by_tag = &self.guarded.limits_by_tag;
        limits_by_tag.limits(limits_by_tag.tag_for(key)).iter().try_for_each(|limit| limit.require(verb))
    }

    /// Converts a state, and the receipts written under the same limits, to those of a tag.
    /// Receipts that this voids make room for others.
    pub(super) fn convert(
        &mut self,
        taken: &mut KeyReceipts,
        state: &mut S::State,
        tag: u16,
        now: Time,
        vacant: &Vacant,
    ) {
        let times = Times { now, latest: self.guarded.latest };
        let KeyReceipts { tag: from, receipts } = taken;
        let before = receipts.len();
        let old = self.guarded.limits_by_tag.limits_of(*from);
        let returned = receipts.expire(old, S::states_mut(state, old.len()), now);
        self.guarded.limits_by_tag.adopt(state, receipts, *from, tag, times);
        self.guarded.returns += u64::from(returned);
        vacant.receipts.fetch_add(before - receipts.len(), Ordering::Relaxed);
        // A scope can have trusted and untrusted limiters.
        let limits_by_tag = &self.guarded.limits_by_tag;
        if let (Some(old), Some(new)) = (limits_by_tag.share(*from), limits_by_tag.share(tag)) {
            old.removed(Pool::Receipts, before);
            new.added(Pool::Receipts, receipts.len());
        }
        *from = tag;
    }

    #[cold]
    pub(super) fn adopt(&mut self, slot: usize, tag: u16, now: Time, vacant: &Vacant) {
        let entries = self.log_capacity(slot);
        self.log_entries_changed(slot, entries, 0, vacant);
        let (from, key) = (self.table.slot(slot).tag(), self.table.key(slot));
        let taken = self.take_all(key);
        let mut taken = taken.unwrap_or(KeyReceipts { tag: from, receipts: Receipts::default() });
        debug_assert_eq!(taken.tag, from, "a key's state and receipts are converted together");
        let mut state = S::update(self.state_of(slot), mem::take);
        self.convert(&mut taken, &mut state, tag, now, vacant);
        S::update(self.state_of(slot), |stored| *stored = state);
        self.table.slot(slot).set_tag(tag);
        self.put_all(key, taken);
        let limits_by_tag = &self.guarded.limits_by_tag;
        // A scope can have trusted and untrusted limiters.
        if let (Some(old), Some(new)) = (limits_by_tag.share(from), limits_by_tag.share(tag)) {
            old.removed(Pool::Keys, 1);
            new.added(Pool::Keys, 1);
        }
        let entries = self.log_capacity(slot);
        self.log_entries_changed(slot, 0, entries, vacant);
        // Under other limits the key may recover sooner.
        self.guarded.none_recovers_before = Time::EPOCH;
    }

    /// Converts all states and receipts to the last version, which counts as version 0 from then
    /// on.
    pub(super) fn restart_versions(&mut self, last: u16, vacant: &Vacant) {
        let now = self.guarded.latest;
        for slot in self.table.held() {
            self.adopt(slot, last, now, vacant);
            self.table.slot(slot).set_tag(0);
        }
        let without_slot = self.guarded.receipt_table.as_ref().map(|open| open.keys_of_other_tags(last));
        for key in without_slot.unwrap_or_default() {
            let receipts = self.take_receipts(key, now, vacant);
            self.put_receipts(key, receipts);
        }
        if let Some(receipt_table) = &mut self.guarded.receipt_table {
            receipt_table.restart_tags();
        }
    }
}

impl StoreCounts {
    #[inline]
    pub(crate) fn decided(&mut self, decision: &Decision) {
        if decision.allowed() {
            self.allowed += 1;
        } else {
            self.denied += 1;
        }
    }
}
