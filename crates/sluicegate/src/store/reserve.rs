//! Reservations: charged now, acted on later, and until then a receipt that can be cancelled or settled.
//!
//! Open receipts are bounded twice: in number for the whole store, and for one key, as a cancel looks at all of the
//! key's. One is forgotten when nobody can want it any more: an hour old at least, and its cost no longer counts.

use super::ledger::Ledger;
use super::rules::Rulings as _;
use super::shape::{Kept, Shape};
use super::{Act, GuardService, Locked, Store, Vacant, claim};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::receipts::{Receipt, Receipts, ReserveCall};
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Decision, Span, Time};

/// The most receipts that one key may have open: a cancel looks at each of them, a few microseconds at this many.
pub(crate) const RECEIPTS_A_KEY_MAX: usize = 1_024;

/// How long a receipt is remembered at least: an hour.
const REMEMBERED: Span = Span::from_micros(3_600_000_000);

/// When all receipts are in use, each further reservation looks for forgotten ones in this many places: some microseconds
/// while none is old enough, well below a millisecond otherwise.
const PLACES_A_SWEEP: usize = 64;

/// Why nothing could be reserved. (A denial is an answer, not this.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotReserved {
    Unsupported(Unsupported),
    TooManyReceipts,
    TooManyReceiptsOfKey,
}

impl<S: Shape> Store<S> {
    /// Charges a key now, to act later. The receipt is open if the answer is yes.
    ///
    /// # Errors
    /// When too many receipts are open, or the limits do not offer it.
    pub(crate) fn reserve(
        &self,
        key: Fingerprint,
        now: Time,
        ask: ReserveCall,
    ) -> Result<Decision, NotReserved> {
        if !self.claim_receipt(now) {
            return Err(NotReserved::TooManyReceipts);
        }
        let mut place = self.lock(self.shard_of(key));
        let latest = place.guarded.latest;
        let reserved = self.on_key_in(&mut place, key, now, |limits, states, receipts| {
            // What was charged before there were receipts was charged by then.
            receipts.fit(limits);
            receipts.charged(latest);
            if receipts.len() >= RECEIPTS_A_KEY_MAX {
                return Err(NotReserved::TooManyReceiptsOfKey);
            }
            receipts.reserve(limits, states, now, ask).map_err(NotReserved::Unsupported)
        });
        let reserved = reserved.unwrap_or_else(|full| Ok(place.denial(full, key)));
        if let Ok(decision) = &reserved {
            place.guarded.counts.decided(decision);
        }
        if !reserved.as_ref().is_ok_and(Decision::allowed) {
            self.vacant.receipts.fetch_add(1, Ordering::Relaxed);
        }
        if place.guarded.ledger.as_ref().is_some_and(|ledger| ledger.wants_sweeping()) {
            place.sweep_receipts(now, &self.vacant);
        }
        reserved
    }

    /// Cancels or settles a receipt, as `close` does. What that made free can be opened again.
    pub(crate) fn close(
        &self,
        key: Fingerprint,
        now: Time,
        receipt: Receipt,
        close: impl Act<S, bool>,
    ) -> bool {
        let mut place = self.lock(self.shard_of(key));
        let is_open = place.guarded.ledger.as_ref().is_some_and(|ledger| ledger.knows(key));
        // Limits that have changed since do not understand the receipt.
        let changed = |slot| place.table.slot(slot).tag() != place.guarded.rules.tag_for(key);
        if !is_open || place.find(key).is_some_and(changed) {
            return false;
        }
        let closed = self.on_key_in(&mut place, key, now, |limits, states, receipts| {
            let before = receipts.len();
            let done = close(limits, states, receipts);
            (done, before - receipts.len())
        });
        drop(place);
        let Ok((done, closed)) = closed else {
            // There is no room for the debt of a settlement. The receipt is used all the same.
            self.forget_receipt(key, receipt);
            return false;
        };
        self.vacant.receipts.fetch_add(closed, Ordering::Relaxed);
        done
    }

    /// Forgets a receipt; its charge stays.
    pub(crate) fn forget_receipt(&self, key: Fingerprint, receipt: Receipt) {
        let mut place = self.lock(self.shard_of(key));
        let mut receipts = Ledger::take(&mut place.guarded.ledger, key, &self.vacant.receipts);
        if receipts.discard(receipt) {
            self.vacant.receipts.fetch_add(1, Ordering::Relaxed);
        }
        Ledger::put(&mut place.guarded.ledger, key, receipts);
    }

    /// Takes one of the receipts that may still be opened. When there is none, forgotten ones are looked for in a few
    /// places, the next time in the next few.
    fn claim_receipt(&self, now: Time) -> bool {
        if claim(&self.vacant.receipts) {
            return true;
        }
        let places = self.shards.len();
        let from = self.next_sweep.fetch_add(PLACES_A_SWEEP, Ordering::Relaxed);
        for place in (0..PLACES_A_SWEEP.min(places)).map(|step| from.wrapping_add(step) % places) {
            self.lock(place).sweep_receipts(now, &self.vacant);
        }
        claim(&self.vacant.receipts)
    }
}

impl<S: Shape> Locked<'_, S> {
    /// Forgets the receipts that nobody can want any more.
    pub(super) fn sweep_receipts(&mut self, now: Time, vacant: &Vacant) {
        let made_before =
            Time::saturating_from_micros(now.as_micros().saturating_sub(REMEMBERED.as_micros()));
        let (table, strays) = (self.table, self.guarded.strays);
        let GuardService { rules, ledger, aside, .. } = &mut *self.guarded;
        Ledger::sweep(ledger, &vacant.receipts, now, REMEMBERED, |key, receipts| {
            let tag = rules.tag_for(key);
            let limits = rules.limits(tag);
            let mut forget = |state: &mut S::State| {
                let states = S::states(state, limits.len());
                receipts.expire_worthless(limits, states, now, made_before);
            };
            match table.find(key, strays) {
                None => forget(&mut S::State::default()),
                Some(slot) if table.slot(slot).tag() == tag => {
                    S::update(Kept { words: table.slot(slot).state, aside, slot }, forget);
                }
                // Receipts of other limits are void with the key's next call.
                Some(_) => *receipts = Receipts::default(),
            }
        });
    }
}
