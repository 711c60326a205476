//! The open receipts of a place's keys.
//!
//! They are kept beside the table, as nearly all keys have none. A key that has recovered may leave the table before
//! its receipts do: what they would give back is nothing by then, but a settlement can still leave a debt.

use crate::key::{ByFingerprint, Fingerprint};
use crate::sync::{AtomicUsize, Ordering};
use sluicegate_core::receipts::Receipts;
use sluicegate_core::{Span, Time};
use std::collections::HashMap;

/// Receipts are looked through for forgotten ones when there are this many, and then whenever they have doubled: the
/// work for each is constant.
const SWEEP_AT: usize = 64;

pub(super) struct ReceiptTable {
    /// By the key, whichever limits are to judge it.
    keys: HashMap<Fingerprint, KeyReceipts, ByFingerprint>,
    open: usize,
    sweep_at: usize,
    /// Before this all are too young to be forgotten, so nobody needs to look.
    none_is_old_before: Time,
}

/// The receipts of a key, in the numbers of the limits of a tag.
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
            none_is_old_before: Time::EPOCH,
        }
    }
}

impl ReceiptTable {
    /// Notes that a key was charged outside of a reservation.
    pub(super) fn charged(&mut self, key: Fingerprint, now: Time) {
        if let Some(kept) = self.keys.get_mut(&key.with_tag(0)) {
            kept.receipts.charged(now);
        }
    }

    /// Whether the key has open receipts in the numbers of the limits that are to judge it.
    pub(super) fn knows(&self, key: Fingerprint) -> bool {
        self.keys.get(&key.with_tag(0)).is_some_and(|kept| kept.tag == key.tag())
    }

    /// The tags of limits that receipts need.
    pub(super) fn tags(&self) -> impl Iterator<Item = u16> {
        self.keys.values().map(|kept| kept.tag)
    }

    /// Takes the receipts of a key out, to be handed back with [`Ledger::put`]. Those in the numbers of other limits than are to
    /// judge the key are void.
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

    /// Keeps the receipts of a key, if there are any.
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

    /// Forgets the receipts of a key, and makes room for others. The key's charges stay.
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

    /// Forgets all receipts.
    pub(super) fn void_all(receipt_table: &mut Option<Box<ReceiptTable>>, vacant: &AtomicUsize) {
        if let Some(void) = receipt_table.take() {
            vacant.fetch_add(void.open, Ordering::Relaxed);
        }
    }

    /// Whether there are so many that forgotten ones should be looked for.
    pub(super) fn wants_sweeping(&self) -> bool {
        self.open >= self.sweep_at
    }

    /// Goes through the receipts of every key, if some may be as old as `remembered`; `keep` drops those that nobody can
    /// want any more.
    pub(super) fn sweep(
        receipt_table: &mut Option<Box<ReceiptTable>>,
        vacant: &AtomicUsize,
        now: Time,
        remembered: Span,
        mut keep: impl FnMut(Fingerprint, &mut Receipts),
    ) {
        let Some(swept) = receipt_table else { return };
        if now < swept.none_is_old_before {
            return;
        }
        let before = swept.open;
        swept.keys.retain(|key, kept| {
            keep(key.with_tag(kept.tag), &mut kept.receipts);
            !kept.receipts.is_empty()
        });
        swept.open = swept.keys.values().map(|kept| kept.receipts.len()).sum();
        swept.sweep_at = SWEEP_AT.max(2 * swept.open);
        let oldest = swept.keys.values().filter_map(|kept| kept.receipts.oldest()).min();
        swept.none_is_old_before = oldest.unwrap_or(now).after(remembered);
        vacant.fetch_add(before - swept.open, Ordering::Relaxed);
        if swept.keys.is_empty() {
            *receipt_table = None;
        }
    }
}
