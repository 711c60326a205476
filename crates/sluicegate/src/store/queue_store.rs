//! The operations of a store that wait queues need.
//!
//! Waiters are charged when they are dequeued, not when they are enqueued. Until the woken task
//! polls, a record of its charge is kept, so that the charge can be rolled back if the task is
//! dropped.

use super::Store;
use super::limit_versions::LimitsByTag as _;
use super::slot_kind::SlotKind;
use crate::key::Fingerprint;
use sluicegate_core::all_of::{check_list, peek_list};
use sluicegate_core::queue::{charge_time, earliest_admission, has_pacer, may_charge_late};
use sluicegate_core::rollback::Charges;
use sluicegate_core::{AnyLimit, AnyState, Decision, Span, Time};
use std::sync::Arc;

/// Why a call was not admitted immediately.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotAdmitted {
    /// It has to wait.
    Wait,
    /// The store has no room for a new key: the denial.
    NoRoom(Decision),
}

/// The result of charging the head of a queue.
#[derive(Debug)]
pub(crate) enum HeadCharge {
    /// The waiter is charged. `charges` can roll that back.
    Charged {
        decision: Decision,
        /// When it was admitted.
        at: Time,
        charges: Charges,
        /// When the next waiter is due, if there is one and that is known.
        next: Option<Time>,
        /// How often a charge of the shard has been returned because its receipt expired.
        returns: u64,
    },
    /// The waiter is not admissible yet: the key was charged in the meantime.
    NotYet,
    /// The key was evicted in the meantime, and the store has no room for it: the denial.
    NoRoom(Decision),
}

impl<S: SlotKind> Store<S> {
    /// Charges a call if it is allowed now and without delay. Otherwise nothing is charged or
    /// counted: a call that will wait is not denied.
    ///
    /// # Errors
    /// If the call has to wait, or the store is full.
    pub(crate) fn try_admit(&self, key: Fingerprint, cost: u64, now: Time) -> Result<Decision, NotAdmitted> {
        if let Some(mut shard) = self.try_lock(self.shard_of(key))
            && let Some(slot) = shard.table.find_fast(key)
            // A pacer's fast path would take a time slot that the call has to wait for.
            && !has_pacer(shard.guarded.limits_by_tag.limits(shard.guarded.limits_by_tag.tag_for(key)))
            && let Some(charged) = shard.try_charge(slot, key, cost, now)
        {
            return Ok(charged.into());
        }
        self.try_admit_in_full(key, cost, now)
    }

    #[inline(never)]
    fn try_admit_in_full(&self, key: Fingerprint, cost: u64, now: Time) -> Result<Decision, NotAdmitted> {
        let mut shard = self.lock(self.shard_of(key));
        let taken = self.charge_key_in(&mut shard, key, now, |limits, states, receipts| {
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

/// A store with slots of any kind, as wait queues use it.
pub(crate) trait QueueStore: Send + Sync {
    /// Charges a call if it is allowed now: see [`Store::try_admit`].
    fn try_admit(&self, key: Fingerprint, cost: u64, now: Time) -> Result<Decision, NotAdmitted>;

    /// The limits that apply to a key.
    fn limits_of(&self, key: Fingerprint) -> Arc<[AnyLimit]>;

    /// A copy of a key's states.
    fn states_of(&self, key: Fingerprint, now: Time) -> Vec<AnyState>;

    /// The first time, not before `from`, at which a call is due: it would be allowed without delay
    /// if no other call came, or it may be, since a charge is returned because its receipt expires.
    fn due_at(&self, key: Fingerprint, now: Time, from: Time, cost: u64) -> Option<Time>;

    /// Decides a call without charging it.
    fn peek(&self, key: Fingerprint, now: Time, cost: u64) -> Decision;

    /// Charges the head of a queue, and returns when the next waiter, of cost `then`, is
    /// admissible. The head is charged as of when it was due if its limits permit that, and as of
    /// now if not.
    fn charge_head(
        &self,
        key: Fingerprint,
        due_and_now: (Time, Time),
        cost: u64,
        then: Option<u64>,
    ) -> HeadCharge;

    /// Rolls back the charges of a waiter that was dropped, and adjusts the later charges of the
    /// `others`. If charges were returned since because their receipts expired, which is known by
    /// `returns`, it is not known any more what the waiter's charges can return: then nothing is.
    fn roll_back(
        &self,
        key: Fingerprint,
        now: Time,
        held_and_returns: (&Charges, u64),
        others: &mut [Charges],
    );

    /// Converts the key's state to its current limits, which apply from now on.
    fn adopt_limits(&self, key: Fingerprint, now: Time);

    /// Counts a decision that the queue made.
    fn count(&self, key: Fingerprint, decision: &Decision);
}

impl<S: SlotKind> QueueStore for Store<S> {
    fn try_admit(&self, key: Fingerprint, cost: u64, now: Time) -> Result<Decision, NotAdmitted> {
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

    fn due_at(&self, key: Fingerprint, now: Time, from: Time, cost: u64) -> Option<Time> {
        let mut shard = self.lock(self.shard_of(key));
        let admission = self
            .read_in(&mut shard, key, now, |limits, states| earliest_admission(limits, states, from, cost));
        let next_return = shard.guarded.receipt_table.as_ref().and_then(|open| open.next_return(key));
        admission.map(|admission| sooner(admission, next_return, from))
    }

    fn peek(&self, key: Fingerprint, now: Time, cost: u64) -> Decision {
        self.read(key, now, |limits, states| peek_list(limits, states, now, cost))
    }

    fn charge_head(
        &self,
        key: Fingerprint,
        (due_at, now): (Time, Time),
        cost: u64,
        then: Option<u64>,
    ) -> HeadCharge {
        let mut shard = self.lock(self.shard_of(key));
        let charged = self.charge_key_in(&mut shard, key, due_at, |limits, states, receipts| {
            let at = if may_charge_late(limits) { due_at } else { due_at.max(now) };
            let Some(as_of) = charge_time(limits, states, at, cost) else { return HeadCharge::NotYet };
            let charges = Charges::make(limits, states, as_of, cost);
            receipts.charged(as_of);
            let next = then.and_then(|cost| earliest_admission(limits, states, at, cost));
            let next = next.map(|next| sooner(next, receipts.next_return(), at));
            HeadCharge::Charged { decision: peek_list(limits, states, at, 0), at, charges, next, returns: 0 }
        });
        let mut charged = charged.unwrap_or_else(|full| HeadCharge::NoRoom(shard.denial(full, key)));
        if let HeadCharge::Charged { decision, returns, .. } = &mut charged {
            shard.guarded.counts.decided(decision);
            *returns = shard.guarded.returns;
        }
        charged
    }

    fn roll_back(
        &self,
        key: Fingerprint,
        now: Time,
        (held, returns): (&Charges, u64),
        others: &mut [Charges],
    ) {
        let mut shard = self.lock(self.shard_of(key));
        if let Some(slot) = shard.find(key) {
            shard.bring_up_to_date(slot, key, now, &self.vacant);
        }
        if shard.guarded.returns != returns {
            return;
        }
        let latest = shard.guarded.latest;
        // An evicted key has no debt, so nothing is returned and no slot is needed.
        let _ = self.with_key_in(&mut shard, key, now, |limits, states, receipts| {
            receipts.fit(limits);
            receipts.charged(latest);
            receipts.settle_charges(limits, states, now, held.each(), 0, others);
        });
    }

    fn adopt_limits(&self, key: Fingerprint, now: Time) {
        // The state does not change, so no slot is needed.
        let _ = self.with_key(key, now, |_, _, _| ());
    }

    fn count(&self, key: Fingerprint, decision: &Decision) {
        self.lock(self.shard_of(key)).guarded.counts.decided(decision);
    }
}

/// The time of an admission, or of a charge's return that comes before it.
fn sooner(admission: Time, next_return: Option<Time>, from: Time) -> Time {
    next_return.map_or(admission, |returned_at| admission.min(returned_at.max(from)))
}

impl<S: SlotKind> Store<S> {
    /// This store as wait queues use it.
    pub(crate) fn as_queue_store(&self) -> &dyn QueueStore {
        self
    }
}
