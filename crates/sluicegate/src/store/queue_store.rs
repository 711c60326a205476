//! What a queue asks of a store.
//!
//! Waiters are charged when they are dequeued, not when they are enqueued. Until the woken task has seen it the charge is
//! remembered, so that it can be rolled back if the task is gone.

use super::Store;
use super::rules::Rulings as _;
use super::shape::Shape;
use crate::key::Fingerprint;
use sluicegate_core::all_of::{check_list, peek_list};
use sluicegate_core::queue::{charge_time, earliest_admission, has_pacer};
use sluicegate_core::rollback::Charges;
use sluicegate_core::{AnyLimit, AnyState, Decision, Span, Time};
use std::sync::Arc;

/// Why a call was not allowed at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotTaken {
    /// It has to wait.
    Wait,
    /// The store has no room for a new key: the denial.
    NoRoom(Decision),
}

/// What came of a turn.
#[derive(Debug)]
pub(crate) enum Called {
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

impl<S: Shape> Store<S> {
    /// Charges the key if the call is allowed now, without delay. Otherwise nothing is done or counted: who waits is not
    /// denied.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn try_turn(&self, key: Fingerprint, cost: u32, now: Time) -> Result<Decision, NotTaken> {
        if let Some(mut place) = self.try_lock(self.shard_of(key))
            && let Some(slot) = place.table.find_at_once(key)
            // The short way would take the slot of a call that has to wait for it.
            && !has_pacer(place.guarded.rules.limits(place.guarded.rules.tag_for(key)))
            && let Some(charged) = place.try_charge(slot, key, cost, now)
        {
            return Ok(charged.into());
        }
        self.try_turn_in_full(key, cost, now)
    }

    #[inline(never)]
    fn try_turn_in_full(&self, key: Fingerprint, cost: u32, now: Time) -> Result<Decision, NotTaken> {
        let mut place = self.lock(self.shard_of(key));
        let taken = self.on_key_in(&mut place, key, now, |limits, states, receipts| {
            let answer = peek_list(limits, states, now, cost);
            if !answer.allowed() || answer.delay() > Span::ZERO {
                return Err(NotTaken::Wait);
            }
            if cost > 0 {
                receipts.charged(now);
            }
            Ok(check_list(limits, states, now, cost))
        });
        let taken = taken.unwrap_or_else(|full| Err(NotTaken::NoRoom(place.denial(full, key))));
        if let Ok(decision) | Err(NotTaken::NoRoom(decision)) = &taken {
            place.guarded.counts.decided(decision);
        }
        taken
    }
}

/// What lines ask of a store of any shape.
pub(crate) trait QueueStore: Send + Sync {
    /// Takes the call if it is allowed now: [`Store::try_turn`].
    fn try_turn(&self, key: Fingerprint, cost: u32, now: Time) -> Result<Decision, NotTaken>;

    /// The limits that are to judge a key.
    fn limits_of(&self, key: Fingerprint) -> Arc<[AnyLimit]>;

    /// A copy of a key's states.
    fn states_of(&self, key: Fingerprint, now: Time) -> Vec<AnyState>;

    /// When a call would be allowed without delay if nobody else came: not before `from`.
    fn turn_at(&self, key: Fingerprint, now: Time, from: Time, cost: u32) -> Option<Time>;

    /// How a call would be answered now.
    fn peek(&self, key: Fingerprint, now: Time, cost: u32) -> Decision;

    /// Charges a turn that has come, and says when that of the next one comes, who asks for `then`.
    fn call(&self, key: Fingerprint, turn: Time, cost: u32, then: Option<u32>) -> Called;

    /// The caller is gone: what it held is given back, and what `others` hold sinks by as much.
    fn gone(&self, key: Fingerprint, now: Time, held: &Charges, others: &mut [Charges]);

    /// Has the limits that are to judge the key now read what others have left: from now on they hold.
    fn meet(&self, key: Fingerprint, now: Time);

    /// Counts a decision that was made for the store, in the line.
    fn count(&self, key: Fingerprint, decision: &Decision);
}

impl<S: Shape> QueueStore for Store<S> {
    fn try_turn(&self, key: Fingerprint, cost: u32, now: Time) -> Result<Decision, NotTaken> {
        Store::try_turn(self, key, cost, now)
    }

    fn limits_of(&self, key: Fingerprint) -> Arc<[AnyLimit]> {
        let rules = &self.lock(self.shard_of(key)).guarded.rules;
        rules.any(rules.tag_for(key))
    }

    fn states_of(&self, key: Fingerprint, now: Time) -> Vec<AnyState> {
        let mut place = self.lock(self.shard_of(key));
        let limits = place.guarded.rules.limits(place.guarded.rules.tag_for(key)).len();
        S::lend(place.copy(key, now), limits)
    }

    fn turn_at(&self, key: Fingerprint, now: Time, from: Time, cost: u32) -> Option<Time> {
        self.look(key, now, |limits, states| earliest_admission(limits, states, from, cost))
    }

    fn peek(&self, key: Fingerprint, now: Time, cost: u32) -> Decision {
        self.look(key, now, |limits, states| peek_list(limits, states, now, cost))
    }

    fn call(&self, key: Fingerprint, turn: Time, cost: u32, then: Option<u32>) -> Called {
        let mut place = self.lock(self.shard_of(key));
        let called = self.on_key_in(&mut place, key, turn, |limits, states, receipts| {
            let Some(as_of) = charge_time(limits, states, turn, cost) else { return Called::NotYet };
            let charges = Charges::make(limits, states, as_of, cost);
            receipts.charged(as_of);
            let next = then.and_then(|cost| earliest_admission(limits, states, turn, cost));
            Called::Charged { decision: peek_list(limits, states, turn, 0), charges, next }
        });
        let called = called.unwrap_or_else(|full| Called::NoRoom(place.denial(full, key)));
        if let Called::Charged { decision, .. } = &called {
            place.guarded.counts.decided(decision);
        }
        called
    }

    fn gone(&self, key: Fingerprint, now: Time, held: &Charges, others: &mut [Charges]) {
        let mut place = self.lock(self.shard_of(key));
        let latest = place.guarded.latest;
        // A key that was forgotten meanwhile owes nothing, so that there is nothing to give back and no room needed.
        let _ = self.on_key_in(&mut place, key, now, |limits, states, receipts| {
            receipts.fit(limits);
            receipts.charged(latest);
            receipts.settle_charges(limits, states, now, held.each(), 0, others);
        });
    }

    fn meet(&self, key: Fingerprint, now: Time) {
        // Nothing is done, so no room is needed.
        let _ = self.on_key(key, now, |_, _, _| ());
    }

    fn count(&self, key: Fingerprint, decision: &Decision) {
        self.lock(self.shard_of(key)).guarded.counts.decided(decision);
    }
}

impl<S: Shape> Store<S> {
    /// As a store of any shape, for lines.
    pub(crate) fn as_queue_store(&self) -> &dyn QueueStore {
        self
    }
}
