//! The open receipts of a place's keys.
//!
//! They are kept beside the table, as nearly all keys have none. A key that has recovered may leave the table before
//! its receipts do: what they would give back is nothing by then, but a settlement can still leave a debt.

use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Ordering};
use sluicegate_core::Time;
use sluicegate_core::receipts::Receipts;
use std::collections::HashMap;

/// Receipts are looked through for forgotten ones when there are this many, and then whenever they have doubled: the
/// work for each is constant.
const SWEEP_AT: usize = 64;

pub(super) struct Ledger {
    keys: HashMap<Fingerprint, Receipts>,
    open: usize,
    sweep_at: usize,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger { keys: HashMap::new(), open: 0, sweep_at: SWEEP_AT }
    }
}

impl Ledger {
    /// Notes that a key was charged outside of a reservation.
    pub(super) fn charged(&mut self, key: Fingerprint, now: Time) {
        if let Some(receipts) = self.keys.get_mut(&key) {
            receipts.charged(now);
        }
    }

    /// Takes the receipts of a key out, to be handed back with [`Ledger::put`].
    #[inline]
    pub(super) fn take(ledger: &mut Option<Box<Ledger>>, key: Fingerprint) -> Receipts {
        let Some(open) = ledger else { return Receipts::default() };
        let receipts = open.keys.remove(&key).unwrap_or_default();
        open.open -= receipts.len();
        receipts
    }

    /// Keeps the receipts of a key, if there are any.
    #[inline]
    pub(super) fn put(ledger: &mut Option<Box<Ledger>>, key: Fingerprint, receipts: Receipts) {
        if !receipts.is_empty() {
            let open = ledger.get_or_insert_default();
            open.open += receipts.len();
            open.keys.insert(key, receipts);
        } else if ledger.as_ref().is_some_and(|open| open.keys.is_empty()) {
            *ledger = None;
        }
    }

    /// Forgets the receipts of a key, and makes room for others. The key's charges stay.
    #[inline]
    pub(super) fn void(ledger: &mut Option<Box<Ledger>>, key: Fingerprint, vacant: &AtomicUsize) {
        if ledger.is_some() {
            let void = Ledger::take(ledger, key);
            vacant.fetch_add(void.len(), Ordering::Relaxed);
            Ledger::put(ledger, key, Receipts::default());
        }
    }

    /// Forgets all receipts.
    pub(super) fn void_all(ledger: &mut Option<Box<Ledger>>, vacant: &AtomicUsize) {
        if let Some(void) = ledger.take() {
            vacant.fetch_add(void.open, Ordering::Relaxed);
        }
    }

    /// Whether there are so many that forgotten ones should be looked for.
    pub(super) fn wants_sweeping(&self) -> bool {
        self.open >= self.sweep_at
    }

    /// Goes through the receipts of every key; `keep` drops those that nobody can want any more.
    pub(super) fn sweep(
        ledger: &mut Option<Box<Ledger>>,
        vacant: &AtomicUsize,
        mut keep: impl FnMut(Fingerprint, &mut Receipts),
    ) {
        let Some(swept) = ledger else { return };
        let before = swept.open;
        swept.keys.retain(|key, receipts| {
            keep(*key, receipts);
            !receipts.is_empty()
        });
        swept.open = swept.keys.values().map(Receipts::len).sum();
        swept.sweep_at = SWEEP_AT.max(2 * swept.open);
        vacant.fetch_add(before - swept.open, Ordering::Relaxed);
        if swept.keys.is_empty() {
            *ledger = None;
        }
    }
}
