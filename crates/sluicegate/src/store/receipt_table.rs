//! The open receipts of a shard's keys.
//!
//! They are stored beside the slots, because nearly all keys have none. A recovered key may lose
//! its slot before its receipts expire: by then they would return nothing, but a settle can still
//! add debt.

use crate::key::{ByFingerprint, Fingerprint};
use crate::sync::{AtomicUsize, Ordering};
use sluicegate_core::receipts::Receipts;
use sluicegate_core::{Span, Time};
use std::collections::HashMap;

/// Expired receipts are swept when this many are open, and then whenever the number has doubled, so
/// the amortized work per receipt is constant.
const SWEEP_AT: usize = 64;

pub(super) struct ReceiptTable {
    /// By key, without a tag.
    keys: HashMap<Fingerprint, KeyReceipts, ByFingerprint>,
    open: usize,
    sweep_at: usize,
    /// No receipt is old enough to expire before this time, so until then no sweep is worthwhile.
    none_expires_before: Time,
}

/// The receipts of a key, in terms of the limits of a tag.
struct KeyReceipts {
    tag: u16,
    receipts: Receipts,
}

impl Default for ReceiptTable {
    fn default() -> Self {
        ReceiptTable {
            keys: HashMap::default(),
            open: 0,
            sweep_at: SWEEP_AT,
            none_expires_before: Time::EPOCH,
        }
    }
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

    /// Takes out the receipts of a key, to be put back with [`ReceiptTable::put`]. Receipts in
    /// terms of other limits than the key's current ones are void.
    #[inline]
    pub(super) fn take(
        receipt_table: &mut Option<Box<ReceiptTable>>,
        key: Fingerprint,
        vacant: &AtomicUsize,
    ) -> Receipts {
        let Some(open) = receipt_table else { return Receipts::default() };
        let Some(KeyReceipts { tag, receipts }) = open.keys.remove(&key.with_tag(0)) else {
            return Receipts::default();
        };
        open.open -= receipts.len();
        if tag == key.tag() {
            return receipts;
        }
        vacant.fetch_add(receipts.len(), Ordering::Relaxed);
        Receipts::default()
    }

    /// Stores the receipts of a key, if there are any.
    #[inline]
    pub(super) fn put(receipt_table: &mut Option<Box<ReceiptTable>>, key: Fingerprint, receipts: Receipts) {
        if !receipts.is_empty() {
            let open = receipt_table.get_or_insert_default();
            open.open += receipts.len();
            open.keys.insert(key.with_tag(0), KeyReceipts { tag: key.tag(), receipts });
        } else if receipt_table.as_ref().is_some_and(|open| open.keys.is_empty()) {
            *receipt_table = None;
        }
    }

    /// Drops the receipts of a key, which frees capacity for others. The key's charges stay.
    #[inline]
    pub(super) fn void(
        receipt_table: &mut Option<Box<ReceiptTable>>,
        key: Fingerprint,
        vacant: &AtomicUsize,
    ) {
        let Some(open) = receipt_table else { return };
        if let Some(void) = open.keys.remove(&key.with_tag(0)) {
            open.open -= void.receipts.len();
            vacant.fetch_add(void.receipts.len(), Ordering::Relaxed);
        }
        if open.keys.is_empty() {
            *receipt_table = None;
        }
    }

    /// Drops all receipts.
    pub(super) fn void_all(receipt_table: &mut Option<Box<ReceiptTable>>, vacant: &AtomicUsize) {
        if let Some(void) = receipt_table.take() {
            vacant.fetch_add(void.open, Ordering::Relaxed);
        }
    }

    /// Returns `true` if enough receipts are open that a sweep is due.
    pub(super) fn is_sweep_due(&self) -> bool {
        self.open >= self.sweep_at
    }

    /// Runs `keep` on the receipts of every key, if some may be older than `min_age`; `keep` drops
    /// those that are worthless.
    pub(super) fn sweep(
        receipt_table: &mut Option<Box<ReceiptTable>>,
        vacant: &AtomicUsize,
        now: Time,
        min_age: Span,
        mut keep: impl FnMut(Fingerprint, &mut Receipts),
    ) {
        let Some(swept) = receipt_table else { return };
        if now < swept.none_expires_before {
            return;
        }
        let before = swept.open;
        swept.keys.retain(|key, entry| {
            keep(key.with_tag(entry.tag), &mut entry.receipts);
            !entry.receipts.is_empty()
        });
        swept.open = swept.keys.values().map(|entry| entry.receipts.len()).sum();
        swept.sweep_at = SWEEP_AT.max(2 * swept.open);
        let oldest = swept.keys.values().filter_map(|entry| entry.receipts.oldest()).min();
        swept.none_expires_before = oldest.unwrap_or(now).saturating_add(min_age);
        vacant.fetch_add(before - swept.open, Ordering::Relaxed);
        if swept.keys.is_empty() {
            *receipt_table = None;
        }
    }
}
