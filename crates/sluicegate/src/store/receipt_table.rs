//! The open receipts of a shard's keys.
//!
//! They are stored beside the slots, because nearly all keys have none. A recovered key may lose
//! its slot before its receipts expire: by then they would return nothing, but a settle can still
//! add debt.

use super::Vacant;
use super::limit_versions::LimitsByTag as _;
use super::shard::{Guarded, Locked};
use super::shares::Pool;
use super::slot_kind::{SlotKind, SlotState};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::Time;
use sluicegate_core::receipts::{Receipt, Receipts};
use std::collections::BTreeMap;
use std::ops::Bound;

#[derive(Default)]
pub(super) struct ReceiptTable {
    /// By key, without a tag. Sorted, so that a pass over all of them can be made in parts.
    keys: BTreeMap<Fingerprint, KeyReceipts>,
    /// The last key that the current pass has visited.
    visited: Option<Fingerprint>,
}

/// The receipts of a key, in terms of the limits of a tag.
pub(super) struct KeyReceipts {
    pub(super) tag: u16,
    pub(super) receipts: Receipts,
}

impl ReceiptTable {
    /// Records that a key was charged outside of a reservation.
    pub(super) fn charged(&mut self, key: Fingerprint, now: Time) {
        if let Some(entry) = self.keys.get_mut(&key.with_tag(0)) {
            entry.receipts.charged(now);
        }
    }

    /// The receipts of a key, if some of them have expired.
    pub(super) fn with_expired(&self, key: Fingerprint, now: Time) -> Option<&Receipts> {
        self.keys.get(&key.with_tag(0)).map(|entry| &entry.receipts).filter(|open| open.has_expired(now))
    }

    /// The receipts of a key.
    pub(super) fn get_mut(&mut self, key: Fingerprint) -> Option<&mut KeyReceipts> {
        self.keys.get_mut(&key.with_tag(0))
    }

    /// Whether each limit of the key has its part of a receipt.
    pub(super) fn charged_under(&self, key: Fingerprint, receipt: Receipt) -> Option<Vec<bool>> {
        self.keys.get(&key.with_tag(0))?.receipts.charged_under(receipt)
    }

    /// The next moment at which a charge of the key is returned because its receipt expires.
    pub(super) fn next_return(&self, key: Fingerprint) -> Option<Time> {
        self.keys.get(&key.with_tag(0))?.receipts.next_return()
    }

    /// The tag of the limits that this receipt of the key is in terms of, if it is open.
    pub(super) fn tag_of(&self, key: Fingerprint, receipt: Receipt) -> Option<u16> {
        let entry = self.keys.get(&key.with_tag(0)).filter(|entry| entry.receipts.is_open(receipt))?;
        Some(entry.tag)
    }

    /// The keys whose receipts are in terms of the limits of another tag than this.
    pub(super) fn keys_of_other_tags(&self, tag: u16) -> Vec<Fingerprint> {
        self.keys.iter().filter(|(_, entry)| entry.tag != tag).map(|(key, _)| *key).collect()
    }

    /// The tags of the limits that receipts need.
    pub(super) fn tags(&self) -> impl Iterator<Item = u16> {
        self.keys.values().map(|entry| entry.tag)
    }

    /// Renames the tags for which there is another name.
    pub(super) fn change_tags(&mut self, mut renamed: impl FnMut(u16) -> Option<u16>) {
        for entry in self.keys.values_mut() {
            entry.tag = renamed(entry.tag).unwrap_or(entry.tag);
        }
    }

    /// The number of keys with open receipts.
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// From now on all receipts are in terms of the limits of tag 0.
    pub(super) fn restart_tags(&mut self) {
        self.keys.values_mut().for_each(|entry| entry.tag = 0);
    }

    /// Visits the receipts of up to this many keys; the next call continues with the following
    /// keys. Keys that `act` leaves without receipts are removed. Returns how many were visited.
    pub(super) fn visit(&mut self, most: usize, mut act: impl FnMut(Fingerprint, &mut KeyReceipts)) -> usize {
        let from = self.visited.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut last, mut visits, mut empty) = (None, 0, Vec::new());
        for (key, entry) in self.keys.range_mut((from, Bound::Unbounded)).take(most) {
            act(*key, entry);
            if entry.receipts.is_empty() {
                empty.push(*key);
            }
            (last, visits) = (Some(*key), visits + 1);
        }
        for key in empty {
            self.keys.remove(&key);
        }
        self.visited = last.filter(|_| visits == most);
        visits
    }
}

impl<S: SlotKind> Locked<'_, S> {
    /// Closes the receipts of a key that have expired. Without a slot the key has recovered, and
    /// nothing is returned.
    #[inline]
    pub(super) fn expire_receipts(
        &mut self,
        slot: Option<usize>,
        key: Fingerprint,
        now: Time,
        vacant: &Vacant,
    ) {
        if self.guarded.receipt_table.is_some() {
            self.find_and_expire_receipts(slot, key, now, vacant);
        }
    }

    #[cold]
    fn find_and_expire_receipts(
        &mut self,
        slot: Option<usize>,
        key: Fingerprint,
        now: Time,
        vacant: &Vacant,
    ) {
        let Guarded { limits_by_tag, receipt_table, side_table, returns, none_recovers_before, .. } =
            &mut *self.guarded;
        let Some(open) = receipt_table else { return };
        let entry = open.keys.get_mut(&key.with_tag(0)).filter(|entry| entry.receipts.has_expired(now));
        let Some(KeyReceipts { tag, receipts }) = entry else { return };
        let (tag, before) = (*tag, receipts.len());
        // A key's state and receipts have one tag.
        let limits = limits_by_tag.limits_of(tag);
        let mut expire = |state: &mut S::State| {
            let held = S::log_capacity(state);
            let returned = receipts.expire(limits, S::states_mut(state, limits.len()), now);
            (returned, held, S::log_capacity(state))
        };
        let (returned, held, holds) = match slot {
            None => expire(&mut S::State::default()),
            Some(slot) => {
                S::update(SlotState { words: self.table.slot(slot).state, side_table, slot }, expire)
            }
        };
        let closed = before - receipts.len();
        if receipts.is_empty() {
            open.keys.remove(&key.with_tag(0));
        }
        if returned {
            *returns += 1;
            // The key may recover sooner.
            *none_recovers_before = Time::EPOCH;
        }
        self.receipts_closed(tag, closed, vacant);
        if let Some(slot) = slot {
            self.log_entries_changed(slot, held, holds, vacant);
        }
        self.drop_empty_table();
    }

    /// Returns `true` if a key has receipts that have expired.
    #[inline]
    pub(super) fn has_expired(&self, key: Fingerprint, now: Time) -> bool {
        self.guarded.receipt_table.as_ref().is_some_and(|open| open.with_expired(key, now).is_some())
    }

    /// The number of open receipts of a key, extensions included.
    pub(super) fn receipts_of(&self, key: Fingerprint) -> usize {
        let open = self.guarded.receipt_table.as_ref();
        open.and_then(|open| open.keys.get(&key.with_tag(0))).map_or(0, |entry| entry.receipts.len())
    }

    /// The next moment at which a charge of the key in a slot is returned because its receipt
    /// expires.
    pub(super) fn next_return(&self, slot: usize) -> Option<Time> {
        self.guarded.receipt_table.as_ref()?.next_return(self.table.key(slot))
    }

    /// Takes out the receipts of a key, in terms of its current limits, to be put back with
    /// [`Locked::put_receipts`]. Those of a key with a slot have been converted with its state.
    #[inline]
    pub(super) fn take_receipts(&mut self, key: Fingerprint, now: Time, vacant: &Vacant) -> Receipts {
        let Some(mut taken) = self.take_all(key) else { return Receipts::default() };
        let tag = self.guarded.limits_by_tag.tag_for(key);
        if taken.tag != tag {
            self.convert(&mut taken, &mut S::State::default(), tag, now, vacant);
        }
        taken.receipts
    }

    /// Stores the receipts of a key, in terms of its current limits, if there are any.
    #[inline]
    pub(super) fn put_receipts(&mut self, key: Fingerprint, receipts: Receipts) {
        let tag = self.guarded.limits_by_tag.tag_for(key);
        self.put_all(key, KeyReceipts { tag, receipts });
    }

    /// Takes out the receipts of a key, in terms of whichever limits.
    #[inline]
    pub(super) fn take_all(&mut self, key: Fingerprint) -> Option<KeyReceipts> {
        self.guarded.receipt_table.as_mut()?.keys.remove(&key.with_tag(0))
    }

    /// Stores the receipts of a key, in terms of whichever limits.
    #[inline]
    pub(super) fn put_all(&mut self, key: Fingerprint, taken: KeyReceipts) {
        if !taken.receipts.is_empty() {
            if let Some(returns_at) = taken.receipts.next_return() {
                self.guarded.none_recovers_before = self.guarded.none_recovers_before.min(returns_at);
            }
            let open = self.guarded.receipt_table.get_or_insert_default();
            open.keys.insert(key.with_tag(0), taken);
        } else if self.guarded.receipt_table.is_some() {
            self.drop_empty_table();
        }
    }

    /// Drops the receipts of a key, which frees room for others. The key's charges stay.
    #[inline]
    pub(super) fn void_receipts(&mut self, key: Fingerprint, vacant: &Vacant) {
        let Some(open) = &mut self.guarded.receipt_table else { return };
        if let Some(void) = open.keys.remove(&key.with_tag(0)) {
            self.receipts_closed(void.tag, void.receipts.len(), vacant);
        }
        self.drop_empty_table();
    }

    /// Drops the receipts of some tags. The keys' charges stay.
    pub(super) fn void_receipts_of(&mut self, is_void: impl Fn(u16) -> bool, vacant: &Vacant) {
        let Some(open) = &mut self.guarded.receipt_table else { return };
        let mut closed = Vec::new();
        open.keys.retain(|_, entry| {
            let kept = !is_void(entry.tag);
            if !kept {
                closed.push((entry.tag, entry.receipts.len()));
            }
            kept
        });
        for (tag, receipts) in closed {
            self.receipts_closed(tag, receipts, vacant);
        }
        self.drop_empty_table();
    }

    /// Drops the table once it is empty, so that checks need not look for receipts.
    pub(super) fn drop_empty_table(&mut self) {
        self.guarded.receipt_table.take_if(|open| open.keys.is_empty());
    }

    /// Returns room in the pool, and in the share of the tag's scope.
    pub(super) fn receipts_closed(&self, tag: u16, closed: usize, vacant: &Vacant) {
        vacant.receipts.fetch_add(closed, Ordering::Relaxed);
        if let Some(share) = self.guarded.limits_by_tag.share(tag) {
            share.removed(Pool::Receipts, closed);
        }
    }
}
