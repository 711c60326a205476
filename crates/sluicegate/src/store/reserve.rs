//! Reservations: charged now and used later. Until then a receipt can cancel or settle them.
//!
//! Open receipts are bounded in total (`receipt_pool.rs`), and per key.

use super::limit_versions::LimitsByTag as _;
use super::shard::Locked;
use super::slot_kind::SlotKind;
use super::{Store, Vacant};
use crate::key::Fingerprint;
use sluicegate_core::algorithm::Verb;
use sluicegate_core::receipts::{Receipt, ReserveCall};
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Decision, Time};

/// Open receipts per key, as in a shared store.
const RECEIPTS_PER_KEY_MAX: usize = 16_384;

/// Why nothing was reserved. (A denial is an answer, not an error.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotReserved {
    Unsupported(Unsupported),
    TooManyReceipts,
    TooManyReceiptsOfKey,
    /// The receipt to extend is not open.
    NotOpen,
}

impl<S: SlotKind> Store<S> {
    /// Charges a key now for a call that happens later. If it is allowed, its receipt is open.
    /// Returns the cost that was granted as well, 0 if denied.
    ///
    /// # Errors
    /// If too many receipts are open, or the limits do not support it.
    pub(crate) fn reserve(
        &self,
        key: Fingerprint,
        now: Time,
        ask: ReserveCall,
    ) -> Result<(Decision, u64), NotReserved> {
        let mut shard = self.lock(self.shard_of(key));
        let verb = if ask.terms.at_least.is_some() { Verb::ReserveAtLeast } else { Verb::Reserve };
        shard.require(key, verb).map_err(NotReserved::Unsupported)?;
        shard.advance(key, now, &self.vacant);
        self.claim_receipt_of(&mut shard, key, now)?;
        let latest = shard.guarded.latest;
        let reserved = self.charge_key_in(&mut shard, key, now, |limits, states, receipts| {
            // Charges that were made before the first receipt are no later than this.
            receipts.fit(limits);
            receipts.charged(latest);
            receipts.reserve(limits, states, now, ask).map_err(NotReserved::Unsupported)
        });
        let reserved = reserved.unwrap_or_else(|full| Ok((shard.denial(full, key), 0)));
        if let Ok((decision, _)) = &reserved {
            shard.guarded.counts.decided(decision);
        }
        if !reserved.as_ref().is_ok_and(|(decision, _)| decision.allowed()) {
            let tag = shard.guarded.limits_by_tag.tag_for(key);
            shard.receipts_closed(tag, 1, &self.vacant);
        }
        reserved
    }

    /// Claims room for one receipt of a key, or for an extension of one. The key is up to date.
    ///
    /// # Errors
    /// If too many receipts are open.
    pub(super) fn claim_receipt_of(
        &self,
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
    ) -> Result<(), NotReserved> {
        shard.tidy_receipts(now, &self.vacant);
        if shard.receipts_of(key) >= RECEIPTS_PER_KEY_MAX {
            shard.drop_worthless_of(key, now, &self.vacant);
            if shard.receipts_of(key) >= RECEIPTS_PER_KEY_MAX {
                return Err(NotReserved::TooManyReceiptsOfKey);
            }
        }
        let tag = shard.guarded.limits_by_tag.tag_for(key);
        if self.claim_receipt(shard, tag, now) { Ok(()) } else { Err(NotReserved::TooManyReceipts) }
    }

    /// Corrects the charges of a receipt to what was used, and frees its capacity. `limiter` is the
    /// tag of the limiter that closes it, if one does. Returns `true` if anything was returned,
    /// `None` if the receipt is not open.
    pub(crate) fn close(
        &self,
        key: Fingerprint,
        limiter: Option<u16>,
        now: Time,
        (receipt, used): (Receipt, u64),
    ) -> Option<bool> {
        self.close_in(&mut self.lock(self.shard_of(key)), key, limiter, now, (receipt, used))
    }

    /// Closes a receipt of several keys at one moment: each with what was used there.
    pub(crate) fn close_all(
        &self,
        keys: &[(Fingerprint, u64)],
        limiter: Option<u16>,
        now: Time,
        receipt: Receipt,
    ) -> Option<bool> {
        let mut order: Vec<usize> = keys.iter().map(|(key, _)| self.shard_of(*key)).collect();
        order.sort_unstable();
        order.dedup();
        let mut shards: Vec<Locked<'_, S>> = order.iter().map(|shard| self.lock(*shard)).collect();
        let index = |key| order.partition_point(|shard| *shard < self.shard_of(key));
        // A call that names no open receipt changes nothing.
        if !keys.iter().any(|(key, _)| shards[index(*key)].is_open(*key, receipt)) {
            return None;
        }
        let close = |(key, used): &(Fingerprint, u64)| {
            let shard = &mut shards[index(*key)];
            shard.expire_receipts(shard.find(*key), *key, now, &self.vacant);
            self.close_in(shard, *key, limiter, now, (receipt, *used))
        };
        keys.iter().filter_map(close).reduce(|one, other| one | other)
    }

    fn close_in(
        &self,
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        limiter: Option<u16>,
        now: Time,
        (receipt, used): (Receipt, u64),
    ) -> Option<bool> {
        let key = shard.key_to_close(key, limiter, receipt)?;
        let closed = self.with_key_in(shard, key, now, |limits, states, receipts| {
            let before = receipts.len();
            let returned = receipts.close(limits, states, now, receipt, used);
            (returned, before - receipts.len())
        });
        let Ok((returned, closed)) = closed else {
            // There is no room for the debt of the settlement. The receipt is used up nonetheless.
            shard.discard_receipt(key, receipt, &self.vacant);
            return None;
        };
        shard.receipts_closed(key.tag(), closed, &self.vacant);
        returned
    }

    /// Discards a receipt; its charge stays.
    pub(crate) fn discard_receipt(&self, key: Fingerprint, receipt: Receipt) {
        self.lock(self.shard_of(key)).discard_receipt(key, receipt, &self.vacant);
    }
}

impl<S: SlotKind> Locked<'_, S> {
    fn discard_receipt(&mut self, key: Fingerprint, receipt: Receipt, vacant: &Vacant) {
        let Some(mut taken) = self.take_all(key) else { return };
        let before = taken.receipts.len();
        taken.receipts.discard(self.guarded.limits_by_tag.limits_of(taken.tag), receipt);
        self.receipts_closed(taken.tag, before - taken.receipts.len(), vacant);
        self.put_all(key, taken);
    }

    /// The key of a receipt, with the tag of the limits under which it is closed or extended;
    /// `None` if the receipt is unknown.
    ///
    /// The receipt says under which limits it was made; the key may have others by now. It is
    /// closed under those of the limiter, or, as the store knows none, of the key's last call.
    pub(super) fn key_to_close(
        &self,
        key: Fingerprint,
        limiter: Option<u16>,
        receipt: Receipt,
    ) -> Option<Fingerprint> {
        let written = self.guarded.receipt_table.as_ref()?.tag_of(key, receipt)?;
        Some(key.with_tag(self.guarded.limits_by_tag.tag_to_close(written, limiter)))
    }

    /// Brings a key's state and receipts up to date for a call that may change it, whether or not
    /// it has a slot.
    pub(super) fn advance(&mut self, key: Fingerprint, now: Time, vacant: &Vacant) {
        if let Some(slot) = self.find(key) {
            self.bring_up_to_date(slot, key, now, vacant);
        } else {
            self.guarded.latest = now.max(self.guarded.latest);
            self.expire_receipts(None, key, now, vacant);
            let receipts = self.take_receipts(key, now, vacant);
            self.put_receipts(key, receipts);
        }
    }

    /// Returns `true` if a receipt is open, unless its time to live has ended.
    pub(super) fn is_open(&self, key: Fingerprint, receipt: Receipt) -> bool {
        self.guarded.receipt_table.as_ref().is_some_and(|open| open.tag_of(key, receipt).is_some())
    }
}
