//! What a queue asks of a store.
//!
//! Waiters are charged when they are dequeued, not when they are enqueued. Until the woken task has seen it the charge is
//! remembered, so that it can be rolled back if the task is gone.

use super::Store;
use super::limit_versions::LimitsByTag as _;
use super::slot_kind::SlotKind;
use crate::key::Fingerprint;
use sluicegate_core::line::{charged_as_of, paces, turn_at};
use sluicegate_core::pile::Charges;
use sluicegate_core::several::{check_list, peek_list};
use sluicegate_core::{AnyLimit, AnyState, Decision, Span, Time};
use std::sync::Arc;

/// Why a call was not allowed at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotAdmitted {
    /// It has to wait.
    Wait,
    /// The store has no room for a new key: the denial.
    NoRoom(Decision),
}

/// What came of a turn.
#[derive(Debug)]
pub(crate) enum HeadCharge {
    /// It is charged. With the charges it can be given back.
    Charged {
        decision: Decision,
        charges: Charges,
        /// The turn of the next, if there is one and it has one.
        next: Option<Time>,
    },
    /// It has not come: the key was charged meanwhile.
    NotYet,
    /// The store has no room for the key, which it has forgotten meanwhile: the denial.
    NoRoom(Decision),
}

impl<S: SlotKind> Store<S> {
    /// Charges the key if the call is allowed now, without delay. Otherwise nothing is done or counted: who waits is not
    /// denied.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn try_admit(&self, key: Fingerprint, cost: u32, now: Time) -> Result<Decision, NotAdmitted> {
        if let Some(mut shard) = self.try_lock(self.shard_of(key))
            && let Some(slot) = shard.table.find_fast(key)
            // The short way would take the slot of a call that has to wait for it.
            && !paces(shard.guarded.limits_by_tag.limits(shard.guarded.limits_by_tag.tag_for(key)))
            && let Some(charged) = shard.try_charge(slot, key, cost, now)
        {
            return Ok(charged.into());
        }
        self.try_admit_in_full(key, cost, now)
    }

    #[inline(never)]
    fn try_admit_in_full(&self, key: Fingerprint, cost: u32, now: Time) -> Result<Decision, NotAdmitted> {
        let mut shard = self.lock(self.shard_of(key));
        let taken = self.with_key_in(&mut shard, key, now, |limits, states, receipts| {
            let answer = peek_list(limits, states, now, cost);
            if !answer.allowed() || answer.delay() > Span::ZERO {
                return Err(NotAdmitted::Wait);
            }
            if cost > 0 {
                receipts.charged(now);
            }
            Ok(check_list(limits, states, now, cost))
        });
        let taken = taken.unwrap_or_else(|full| Err(NotAdmitted::NoRoom(shard.denial(full, key))));
        if let Ok(decision) | Err(NotAdmitted::NoRoom(decision)) = &taken {
            shard.guarded.counts.decided(decision);
        }
        taken
    }
}

/// What lines ask of a store of any shape.
pub(crate) trait QueueStore: Send + Sync {
    /// Takes the call if it is allowed now: [`Store::try_admit`].
    fn try_admit(&self, key: Fingerprint, cost: u32, now: Time) -> Result<Decision, NotAdmitted>;

    /// The limits that are to judge a key.
    fn limits_of(&self, key: Fingerprint) -> Arc<[AnyLimit]>;

    /// A copy of a key's states.
    fn states_of(&self, key: Fingerprint, now: Time) -> Vec<AnyState>;

    /// When a call would be allowed without delay if nobody else came: not before `from`.
    fn admissible_at(&self, key: Fingerprint, now: Time, from: Time, cost: u32) -> Option<Time>;

    /// How a call would be answered now.
    fn peek(&self, key: Fingerprint, now: Time, cost: u32) -> Decision;

    /// Charges a turn that has come, and says when that of the next one comes, who asks for `then`.
    fn charge_head(&self, key: Fingerprint, at: Time, cost: u32, then: Option<u32>) -> HeadCharge;

    /// The caller is gone: what it held is given back, and what `others` hold sinks by as much.
    fn roll_back(&self, key: Fingerprint, now: Time, held: &Charges, others: &mut [Charges]);

    /// Has the limits that are to judge the key now read what others have left: from now on they hold.
    fn adopt_limits(&self, key: Fingerprint, now: Time);

    /// Counts a decision that was made for the store, in the line.
    fn count(&self, key: Fingerprint, decision: &Decision);
}

impl<S: SlotKind> QueueStore for Store<S> {
    fn try_admit(&self, key: Fingerprint, cost: u32, now: Time) -> Result<Decision, NotAdmitted> {
        Store::try_admit(self, key, cost, now)
    }

    fn limits_of(&self, key: Fingerprint) -> Arc<[AnyLimit]> {
        let limits_by_tag = &self.lock(self.shard_of(key)).guarded.limits_by_tag;
        limits_by_tag.any_limits(limits_by_tag.tag_for(key))
    }

    fn states_of(&self, key: Fingerprint, now: Time) -> Vec<AnyState> {
        let mut shard = self.lock(self.shard_of(key));
        let limits = shard.guarded.limits_by_tag.limits(shard.guarded.limits_by_tag.tag_for(key)).len();
        S::into_states(shard.copy(key, now), limits)
    }

    fn admissible_at(&self, key: Fingerprint, now: Time, from: Time, cost: u32) -> Option<Time> {
        self.read(key, now, |limits, states| turn_at(limits, states, from, cost))
    }

    fn peek(&self, key: Fingerprint, now: Time, cost: u32) -> Decision {
        self.read(key, now, |limits, states| peek_list(limits, states, now, cost))
    }

    fn charge_head(&self, key: Fingerprint, at: Time, cost: u32, then: Option<u32>) -> HeadCharge {
        let mut shard = self.lock(self.shard_of(key));
        let charged = self.with_key_in(&mut shard, key, at, |limits, states, receipts| {
            let Some(as_of) = charged_as_of(limits, states, at, cost) else { return HeadCharge::NotYet };
            let charges = Charges::make(limits, states, as_of, cost);
            receipts.charged(as_of);
            let next = then.and_then(|cost| turn_at(limits, states, at, cost));
            HeadCharge::Charged { decision: peek_list(limits, states, at, 0), charges, next }
        });
        let charged = charged.unwrap_or_else(|full| HeadCharge::NoRoom(shard.denial(full, key)));
        if let HeadCharge::Charged { decision, .. } = &charged {
            shard.guarded.counts.decided(decision);
        }
        charged
    }

    fn roll_back(&self, key: Fingerprint, now: Time, held: &Charges, others: &mut [Charges]) {
        let mut shard = self.lock(self.shard_of(key));
        let latest = shard.guarded.latest;
        // A key that was forgotten meanwhile owes nothing, so that there is nothing to give back and no room needed.
        let _ = self.with_key_in(&mut shard, key, now, |limits, states, receipts| {
            receipts.fit(limits);
            receipts.charged(latest);
            receipts.settle_charges(limits, states, now, held.each(), 0, others);
        });
    }

    fn adopt_limits(&self, key: Fingerprint, now: Time) {
        // Nothing is done, so no room is needed.
        let _ = self.with_key(key, now, |_, _, _| ());
    }

    fn count(&self, key: Fingerprint, decision: &Decision) {
        self.lock(self.shard_of(key)).guarded.counts.decided(decision);
    }
}

impl<S: SlotKind> Store<S> {
    /// As a store of any shape, for lines.
    pub(crate) fn as_queue_store(&self) -> &dyn QueueStore {
        self
    }
}
