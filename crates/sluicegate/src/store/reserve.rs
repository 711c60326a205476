//! Reservations: charged now and used later. Until then a receipt can cancel or settle them.
//!
//! Open receipts are bounded in total (`receipt_pool.rs`), and per key.

use super::limit_versions::LimitsByTag as _;
use super::slot_kind::SlotKind;
use super::{KeyOp, Store};
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
        let tag = shard.guarded.limits_by_tag.tag_for(key);
        shard.tidy_receipts(now, &self.vacant);
        if !self.claim_receipt(&mut shard, tag, now) {
            return Err(NotReserved::TooManyReceipts);
        }
        let latest = shard.guarded.latest;
        let reserved = self.charge_key_in(&mut shard, key, now, |limits, states, receipts| {
            // Charges that were made before the first receipt are no later than this.
            receipts.fit(limits);
            receipts.charged(latest);
            if receipts.len() >= RECEIPTS_PER_KEY_MAX {
                return Err(NotReserved::TooManyReceiptsOfKey);
            }
            receipts.reserve(limits, states, now, ask).map_err(NotReserved::Unsupported)
        });
        let reserved = reserved.unwrap_or_else(|full| Ok((shard.denial(full, key), 0)));
        if let Ok((decision, _)) = &reserved {
            shard.guarded.counts.decided(decision);
        }
        if !reserved.as_ref().is_ok_and(|(decision, _)| decision.allowed()) {
            shard.receipts_closed(tag, 1, &self.vacant);
        }
        reserved
    }

    /// Cancels or settles a receipt by running `close`, and frees its capacity. `limiter` is the
    /// tag of the limiter that closes it, if one does.
    pub(crate) fn close(
        &self,
        key: Fingerprint,
        limiter: Option<u16>,
        now: Time,
        receipt: Receipt,
        close: impl KeyOp<S, bool>,
    ) -> bool {
        let mut shard = self.lock(self.shard_of(key));
        // The receipt says under which limits it was made; the key may have others by now. It is
        // closed under those of the limiter, or, as the store knows none, of the key's last call.
        let written = shard.guarded.receipt_table.as_ref().and_then(|open| open.tag_of(key, receipt));
        let Some(written) = written else { return false };
        let key = key.with_tag(shard.guarded.limits_by_tag.tag_to_close(written, limiter));
        let closed = self.with_key_in(&mut shard, key, now, |limits, states, receipts| {
            let before = receipts.len();
            let done = close(limits, states, receipts);
            (done, before - receipts.len())
        });
        let Ok((done, closed)) = closed else {
            // There is no room for the debt of the settlement. The receipt is used up nonetheless.
            drop(shard);
            self.discard_receipt(key, receipt);
            return false;
        };
        shard.receipts_closed(key.tag(), closed, &self.vacant);
        done
    }

    /// Drops a receipt; its charge stays.
    pub(crate) fn discard_receipt(&self, key: Fingerprint, receipt: Receipt) {
        let mut shard = self.lock(self.shard_of(key));
        let Some(mut taken) = shard.take_all(key) else { return };
        if taken.receipts.discard(shard.guarded.limits_by_tag.limits_of(taken.tag), receipt) {
            shard.receipts_closed(taken.tag, 1, &self.vacant);
        }
        shard.put_all(key, taken);
    }
}
