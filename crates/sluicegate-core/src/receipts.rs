//! The open reservations of one key: what each charged, so that it can be returned.
//!
//! The store passes the key's states and limits to each call; an [`crate::Account`] keeps both
//! together. A key that never reserves needs none of this.

use crate::algorithm::{Algorithm, Verb};
use crate::all_of::{Part, peek_list, reserve_all};
use crate::decision::Decision;
use crate::rescaling::Adopted;
use crate::rollback::{Charge, Charges, Times};
use crate::time::{Span, Time};
use crate::verbs::{Unsupported, Verbs as _};
use alloc::vec::Vec;

/// Identifies one reservation of one key, for one cancel or settle. The store chooses the numbers,
/// and adds the scope and the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Receipt(pub u64);

/// The reservations of a key that were neither cancelled nor settled.
#[derive(Clone, Default, Debug)]
pub struct Receipts {
    /// When each limit's state is last known to have changed. Only rollbacks need it.
    latest: Vec<Time>,
    open: Vec<OpenReceipt>,
}

/// A reservation that is neither cancelled nor settled.
#[derive(Clone, Debug)]
struct OpenReceipt {
    receipt: Receipt,
    made: Time,
    /// One per limit.
    charges: Vec<Charge>,
}

impl Receipts {
    /// Notes that the key was charged outside a reservation.
    pub fn charged(&mut self, now: Time) {
        self.latest.iter_mut().for_each(|latest| *latest = now.max(*latest));
    }

    /// Returns `cost` to the key under every limit, as far as each allows, and returns the decision
    /// for cost 0.
    ///
    /// # Errors
    /// If one of the limits does not support this verb; then nothing is returned under any of them.
    pub fn refund<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        cost: u32,
    ) -> Result<Decision, Unsupported> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Refund))?;
        self.fit(limits);
        for (position, ((limit, state), latest)) in
            limits.iter().zip(&mut *states).zip(&mut self.latest).enumerate()
        {
            if limit.refund(state, now, cost) {
                *latest = now.max(*latest);
                for open in self.open.iter_mut().filter_map(|open| open.charges.get_mut(position)) {
                    limit.cap_height(state, open);
                }
            }
        }
        Ok(peek_list(limits, states, now, 0))
    }

    /// Charges a reservation now, if the caller can act within `max_wait`, after the decision's
    /// delay. Buckets may borrow. The receipt is open if the reservation is allowed.
    ///
    /// # Errors
    /// If one of the limits does not support this verb.
    pub fn reserve<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        ReserveCall { cost, max_wait, receipt }: ReserveCall,
    ) -> Result<Decision, Unsupported> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Reserve))?;
        self.fit(limits);
        let mut parts: Vec<Part<'_, A>> =
            limits.iter().zip(states).map(|(limit, state)| Part { limit, state, cost }).collect();
        let (decision, charges) = reserve_all(&mut parts, now, max_wait);
        if let Some(charges) = charges {
            if cost > 0 {
                self.charged(now);
            }
            self.open.push(OpenReceipt { receipt, made: now, charges });
        }
        Ok(decision)
    }

    /// Cancels a reservation: the part of its cost that still counts is returned to the key.
    /// Returns `false` if there was no such part, or the receipt is used or unknown. Takes time
    /// linear in the number of open receipts.
    pub fn cancel<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        receipt: Receipt,
    ) -> bool {
        self.close(limits, states, now, receipt, 0) == Some(true)
    }

    /// Corrects a reservation to what was actually used: the rest is returned as by a cancel, an
    /// excess becomes debt. Returns `false` if the receipt is used or unknown.
    pub fn settle<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        receipt: Receipt,
        used: u32,
    ) -> bool {
        self.close(limits, states, now, receipt, used).is_some()
    }

    /// Settles a receipt. Returns `true` if anything was returned, `None` if the receipt is not
    /// open.
    fn close<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        receipt: Receipt,
        used: u32,
    ) -> Option<bool> {
        let index = self.open.iter().position(|open| open.receipt == receipt)?;
        let OpenReceipt { charges, .. } = self.open.swap_remove(index);
        Some(self.settle_charges(limits, states, now, &charges, used, &mut []))
    }

    /// Settles charges that are kept elsewhere, as are those of `others`: the charges of dequeued
    /// waiters that have not been woken yet. Returns `true` if anything was returned.
    pub fn settle_charges<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        charges: &[Charge],
        used: u32,
        others: &mut [Charges],
    ) -> bool {
        let mut returned = false;
        for (position, (((limit, state), latest), charge)) in
            limits.iter().zip(states).zip(&mut self.latest).zip(charges).enumerate()
        {
            let rollback = limit.settle_charge(state, Times { now, latest: *latest }, charge, used);
            if rollback.is_some() || used > charge.cost() {
                *latest = now.max(*latest);
            }
            let Some(rollback) = rollback else { continue };
            returned = true;
            let open = self.open.iter_mut().map(|open| &mut *open.charges);
            let held = others.iter_mut().map(Charges::each_mut);
            for charge in open.chain(held).filter_map(|charges| charges.get_mut(position)) {
                limit.shift_down(&rollback, charge);
            }
        }
        returned
    }

    /// Converts the key's states and open receipts to other limits, each from the limit at the same
    /// position, as `adopt` converts a state ([`Algorithm::adopt`], or a variant of it). There is
    /// one state per old limit. `latest` is the latest time known besides that of the receipts.
    ///
    /// A receipt keeps its charges under the limits that keep their states. Without any it is void.
    pub fn adopt<A: Algorithm>(
        &mut self,
        (limits, old): (&[A], &[A]),
        states: &mut [A::State],
        Times { now, latest }: Times,
        adopt: impl Fn(&A, &A, &mut A::State, Times) -> Adopted,
    ) {
        for (position, ((limit, old), state)) in limits.iter().zip(old).zip(states).enumerate() {
            let times = Times { now, latest: latest.max(self.latest(position)) };
            let adopted = adopt(limit, old, state, times);
            if let Some(latest) = self.latest.get_mut(position) {
                match adopted {
                    Adopted::Fresh => *latest = Time::EPOCH,
                    Adopted::Rescaled(_) => *latest = now.max(*latest),
                    Adopted::Kept | Adopted::Unseen => {}
                }
            }
            for charge in self.open.iter_mut().filter_map(|open| open.charges.get_mut(position)) {
                adopted.convert(charge);
            }
        }
        let kept = limits.len().min(old.len());
        self.latest.truncate(kept);
        self.open.retain_mut(|open| {
            open.charges.truncate(kept);
            open.charges.iter().any(|charge| *charge != Charge::VOID)
        });
    }

    /// Returns when the state of the limit at a position is last known to have changed.
    pub fn latest(&self, position: usize) -> Time {
        self.latest.get(position).copied().unwrap_or(Time::EPOCH)
    }

    /// Returns the number of open receipts. Each is kept until it is cancelled, settled or expires.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns `true` if this receipt is open.
    pub fn is_open(&self, receipt: Receipt) -> bool {
        self.open.iter().any(|open| open.receipt == receipt)
    }

    /// Returns `true` if no receipt is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Discards a receipt; its cost stays charged. Returns `true` if it was open.
    pub fn discard(&mut self, receipt: Receipt) -> bool {
        let before = self.open.len();
        self.open.retain(|open| open.receipt != receipt);
        self.open.len() < before
    }

    /// Discards up to this many of the oldest receipts; their costs stay charged.
    pub fn discard_oldest(&mut self, most: usize) {
        self.open.sort_by_key(|open| open.made);
        self.open.drain(..most.min(self.open.len()));
    }

    /// Expires the receipts of reservations made before a time, so that abandoned ones do not
    /// accumulate.
    pub fn expire_made_before(&mut self, time: Time) {
        self.open.retain(|open| open.made >= time);
    }

    /// Expires the receipts of reservations made before a time whose cost no longer counts: a
    /// cancel would return nothing.
    pub fn expire_worthless<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &[A::State],
        now: Time,
        made_before: Time,
    ) {
        let Receipts { latest, open } = self;
        open.retain(|open| {
            let mut charges = limits.iter().zip(states).zip(&*latest).zip(&open.charges);
            let mut counts = || {
                charges.any(|(((limit, state), latest), charge)| {
                    let times = Times { now, latest: *latest };
                    limit.roll_back(&mut state.clone(), times, charge, charge.cost()).is_some()
                })
            };
            // The time is compared first: copying a long log is slow.
            open.made >= made_before || counts()
        });
    }

    /// Returns when the oldest open reservation was made.
    pub fn oldest(&self) -> Option<Time> {
        self.open.iter().map(|open| open.made).min()
    }

    /// Tracks from now on when the state of each of these limits changes.
    pub fn fit<A>(&mut self, limits: &[A]) {
        self.latest.resize(limits.len(), Time::EPOCH);
    }
}

/// A call that reserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveCall {
    /// The cost.
    pub cost: u32,
    /// The longest delay that the caller accepts.
    pub max_wait: Span,
    /// The receipt, which no other open reservation of this key has.
    pub receipt: Receipt,
}
