//! The open receipts of a shard's keys.
//!
//! They are stored beside the slots, because nearly all keys have none. A recovered key may lose
//! its slot before its receipts expire: by then they would return nothing, but a settle can still
//! add debt.

use super::Vacant;
use super::limit_versions::LimitsByTag as _;
use super::shard::Locked;
use super::shares::Pool;
use super::slot_kind::SlotKind;
use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Ordering};
use sluicegate_core::Time;
use sluicegate_core::receipts::Receipts;
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
struct KeyReceipts {
    tag: u16,
    receipts: Receipts,
}

impl ReceiptTable {
    /// Records that a key was charged outside of a reservation.
    pub(super) fn charged(&mut self, key: Fingerprint, now: Time) {
        if let Some(entry) = self.keys.get_mut(&key.with_tag(0)) {
            entry.receipts.charged(now);
        }
    }

    /// Returns `true` if the key has open receipts in terms of its current limits.
    pub(super) fn contains(&self, key: Fingerprint) -> bool {
        self.keys.get(&key.with_tag(0)).is_some_and(|entry| entry.tag == key.tag())
    }

    /// The tags of the limits that receipts need.
    pub(super) fn tags(&self) -> impl Iterator<Item = u16> {
        self.keys.values().map(|entry| entry.tag)
    }

    /// The number of keys with open receipts.
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Drops all receipts, in the store of one limiter.
    pub(super) fn void_all(receipt_table: &mut Option<Box<ReceiptTable>>, vacant: &AtomicUsize) {
        if let Some(void) = receipt_table.take() {
            let open = void.keys.values().map(|entry| entry.receipts.len()).sum();
            vacant.fetch_add(open, Ordering::Relaxed);
        }
    }

    /// Visits the receipts of up to this many keys; the next call continues with the following
    /// keys. Keys that `act` leaves without receipts are removed. Returns how many were visited.
    pub(super) fn visit(&mut self, most: usize, mut act: impl FnMut(Fingerprint, &mut Receipts)) -> usize {
        let from = self.visited.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut last, mut visits, mut empty) = (None, 0, Vec::new());
        for (key, entry) in self.keys.range_mut((from, Bound::Unbounded)).take(most) {
            act(key.with_tag(entry.tag), &mut entry.receipts);
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
    /// Takes out the receipts of a key, to be put back with [`Locked::put_receipts`]. Receipts in
    /// terms of other limits than the key's current ones are void.
    #[inline]
    pub(super) fn take_receipts(&mut self, key: Fingerprint, vacant: &Vacant) -> Receipts {
        let Some(open) = &mut self.guarded.receipt_table else { return Receipts::default() };
        let Some(KeyReceipts { tag, receipts }) = open.keys.remove(&key.with_tag(0)) else {
            return Receipts::default();
        };
        if tag == key.tag() {
            return receipts;
        }
        self.receipts_closed(tag, receipts.len(), vacant);
        Receipts::default()
    }

    /// Stores the receipts of a key, if there are any.
    #[inline]
    pub(super) fn put_receipts(&mut self, key: Fingerprint, receipts: Receipts) {
        if !receipts.is_empty() {
            let open = self.guarded.receipt_table.get_or_insert_default();
            open.keys.insert(key.with_tag(0), KeyReceipts { tag: key.tag(), receipts });
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
