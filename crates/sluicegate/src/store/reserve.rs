//! Reservations: charged now and used later. Until then a receipt can cancel or settle them.
//!
//! Open receipts are bounded twice: in total, and per key, because a cancel visits all receipts of
//! its key. A receipt expires when it is at least an hour old and its cost no longer counts.

use super::limit_versions::LimitsByTag as _;
use super::receipt_table::ReceiptTable;
use super::slot_kind::{SlotKind, SlotState};
use super::{Guarded, KeyOp, Locked, Store, Vacant, claim};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::receipts::{Receipt, Receipts, ReserveCall};
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Decision, Span, Time};

/// Open receipts per key. A cancel visits each of them, a few microseconds at this many.
const RECEIPTS_PER_KEY_MAX: usize = 1_024;

/// Receipts are kept for at least an hour.
const KEPT_AT_LEAST: Span = Span::from_micros(3_600_000_000);

/// When all receipts are in use, each further reservation sweeps this many shards for expired ones:
/// some microseconds while none is old enough, well below a millisecond otherwise.
const SHARDS_PER_SWEEP: usize = 64;

/// Why nothing was reserved. (A denial is an answer, not an error.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotReserved {
    Unsupported(Unsupported),
    TooManyReceipts,
    TooManyReceiptsOfKey,
}

impl<S: SlotKind> Store<S> {
    /// Charges a key now for a call that happens later. If it is allowed, its receipt is open.
    ///
    /// # Errors
    /// If too many receipts are open, or the limits do not support it.
    pub(crate) fn reserve(
        &self,
        key: Fingerprint,
        now: Time,
        ask: ReserveCall,
    ) -> Result<Decision, NotReserved> {
        if !self.claim_receipt(now) {
            return Err(NotReserved::TooManyReceipts);
        }
        let mut shard = self.lock(self.shard_of(key));
        let latest = shard.guarded.latest;
        let reserved = self.charge_key_in(&mut shard, key, now, |limits, states, receipts| {
            // Charges from before there were receipts are no later than this.
            receipts.fit(limits);
            receipts.charged(latest);
            if receipts.len() >= RECEIPTS_PER_KEY_MAX {
                return Err(NotReserved::TooManyReceiptsOfKey);
            }
            receipts.reserve(limits, states, now, ask).map_err(NotReserved::Unsupported)
        });
        let reserved = reserved.unwrap_or_else(|full| Ok(shard.denial(full, key)));
        if let Ok(decision) = &reserved {
            shard.guarded.counts.decided(decision);
        }
        if !reserved.as_ref().is_ok_and(Decision::allowed) {
            self.vacant.receipts.fetch_add(1, Ordering::Relaxed);
        }
        if shard.guarded.receipt_table.as_ref().is_some_and(|receipt_table| receipt_table.is_sweep_due()) {
            shard.sweep_receipts(now, &self.vacant);
        }
        reserved
    }

    /// Cancels or settles a receipt by running `close`, and frees its capacity.
    pub(crate) fn close(
        &self,
        key: Fingerprint,
        now: Time,
        receipt: Receipt,
        close: impl KeyOp<S, bool>,
    ) -> bool {
        let mut shard = self.lock(self.shard_of(key));
        let is_open =
            shard.guarded.receipt_table.as_ref().is_some_and(|receipt_table| receipt_table.contains(key));
        // If the limits have changed since, they cannot read the receipt.
        let changed = |slot| shard.table.slot(slot).tag() != shard.guarded.limits_by_tag.tag_for(key);
        if !is_open || shard.find(key).is_some_and(changed) {
            return false;
        }
        let closed = self.with_key_in(&mut shard, key, now, |limits, states, receipts| {
            let before = receipts.len();
            let done = close(limits, states, receipts);
            (done, before - receipts.len())
        });
        drop(shard);
        let Ok((done, closed)) = closed else {
            // There is no room for the debt of the settlement. The receipt is used up nonetheless.
            self.forget_receipt(key, receipt);
            return false;
        };
        self.vacant.receipts.fetch_add(closed, Ordering::Relaxed);
        done
    }

    /// Drops a receipt; its charge stays.
    pub(crate) fn forget_receipt(&self, key: Fingerprint, receipt: Receipt) {
        let mut shard = self.lock(self.shard_of(key));
        let mut receipts = ReceiptTable::take(&mut shard.guarded.receipt_table, key, &self.vacant.receipts);
        if receipts.discard(receipt) {
            self.vacant.receipts.fetch_add(1, Ordering::Relaxed);
        }
        ReceiptTable::put(&mut shard.guarded.receipt_table, key, receipts);
    }

    /// Claims capacity for one receipt. If there is none, a few shards are swept for expired
    /// receipts; the next time, the next few.
    fn claim_receipt(&self, now: Time) -> bool {
        if claim(&self.vacant.receipts) {
            return true;
        }
        let shards = self.shards.len();
        let from = self.next_sweep.fetch_add(SHARDS_PER_SWEEP, Ordering::Relaxed);
        for shard in (0..SHARDS_PER_SWEEP.min(shards)).map(|step| from.wrapping_add(step) % shards) {
            self.lock(shard).sweep_receipts(now, &self.vacant);
        }
        claim(&self.vacant.receipts)
    }
}

impl<S: SlotKind> Locked<'_, S> {
    /// Drops expired receipts.
    pub(super) fn sweep_receipts(&mut self, now: Time, vacant: &Vacant) {
        let made_before =
            Time::saturating_from_micros(now.as_micros().saturating_sub(KEPT_AT_LEAST.as_micros()));
        let (table, displaced) = (self.table, self.guarded.displaced);
        let Guarded { limits_by_tag, receipt_table, side_table, .. } = &mut *self.guarded;
        ReceiptTable::sweep(receipt_table, &vacant.receipts, now, KEPT_AT_LEAST, |key, receipts| {
            let tag = limits_by_tag.tag_for(key);
            let limits = limits_by_tag.limits(tag);
            let mut forget = |state: &mut S::State| {
                let states = S::states_mut(state, limits.len());
                receipts.expire_worthless(limits, states, now, made_before);
            };
            match table.find(key, displaced) {
                None => forget(&mut S::State::default()),
                Some(slot) if table.slot(slot).tag() == tag => {
                    S::update(SlotState { words: table.slot(slot).state, side_table, slot }, forget);
                }
                // Receipts in terms of other limits become void with the key's next call.
                Some(_) => *receipts = Receipts::default(),
            }
        });
    }
}
