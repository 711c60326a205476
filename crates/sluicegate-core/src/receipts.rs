//! The reservations of one key that are still open: what each charged, so that it can be given back.
//!
//! Whoever keeps the key's states hands them in with each call, with the limits they belong to; an [`crate::Account`]
//! is both in one. A key that never reserves needs none of this.

use crate::algorithm::{Algorithm, Verb};
use crate::all_of::{Part, peek_list, reserve_all};
use crate::decision::Decision;
use crate::rollback::{Charge, Charges, Times};
use crate::time::{Span, Time};
use crate::verbs::{Unsupported, Verbs as _};
use alloc::vec::Vec;

/// Names one reservation of one key, good for one cancel or settle. Whoever hands receipts out chooses the names,
/// and adds whose they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Receipt(pub u64);

/// What a key has reserved and neither cancelled nor settled.
#[derive(Clone, Default, Debug)]
pub struct Receipts {
    /// When each limit's state last changed, as far as known here. Only what is given back asks for it.
    latest: Vec<Time>,
    open: Vec<OpenReceipt>,
}

/// A reservation that was neither cancelled nor settled yet.
#[derive(Clone, Debug)]
struct OpenReceipt {
    receipt: Receipt,
    made: Time,
    /// One for each limit.
    charges: Vec<Charge>,
}

impl Receipts {
    /// Notes that the key was charged outside of a reservation.
    pub fn charged(&mut self, now: Time) {
        self.latest.iter_mut().for_each(|latest| *latest = now.max(*latest));
    }

    /// Gives `cost` back to every limit, as far as each allows. The answer is the decision for cost 0.
    ///
    /// # Errors
    /// When one of the limits does not offer this verb; then none is given anything.
    pub fn refund<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        cost: u32,
    ) -> Result<Decision, Unsupported> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Refund))?;
        self.fit(limits);
        for (place, ((limit, state), latest)) in
            limits.iter().zip(&mut *states).zip(&mut self.latest).enumerate()
        {
            if limit.refund(state, now, cost) {
                *latest = now.max(*latest);
                for open in self.open.iter_mut().filter_map(|open| open.charges.get_mut(place)) {
                    limit.cap_height(state, open);
                }
            }
        }
        Ok(peek_list(limits, states, now, 0))
    }

    /// Charges `cost` now under the name `receipt`, to act after the answer's delay, which is at most `max_wait`.
    /// Buckets may borrow. The receipt is open if the answer is yes.
    ///
    /// # Errors
    /// When one of the limits does not offer this verb.
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

    /// Gives back what still counts of a reservation. Whether that was anything: not if the receipt is used,
    /// unknown or worth nothing any more. The work grows with the number of open receipts.
    pub fn cancel<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        receipt: Receipt,
    ) -> bool {
        self.close(limits, states, now, receipt, 0) == Some(true)
    }

    /// Says what a reservation really used: the rest is given back as by a cancel, an excess becomes debt.
    /// `false` if the receipt is used or unknown.
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

    /// Settles a receipt. Whether anything was given back; `None` if it is not open.
    fn close<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        receipt: Receipt,
        used: u32,
    ) -> Option<bool> {
        let place = self.open.iter().position(|open| open.receipt == receipt)?;
        let OpenReceipt { charges, .. } = self.open.swap_remove(place);
        Some(self.settle_charges(limits, states, now, &charges, used, &mut []))
    }

    /// Settles charges that are remembered elsewhere, as are those of `others`: whoever was called from a line and has not
    /// seen it yet. Whether anything was given back.
    pub fn settle_charges<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        charges: &[Charge],
        used: u32,
        others: &mut [Charges],
    ) -> bool {
        let mut gave = false;
        for (place, (((limit, state), latest), charge)) in
            limits.iter().zip(states).zip(&mut self.latest).zip(charges).enumerate()
        {
            let rollback = limit.settle_charge(state, Times { now, latest: *latest }, charge, used);
            if rollback.is_some() || used > charge.cost() {
                *latest = now.max(*latest);
            }
            let Some(rollback) = rollback else { continue };
            gave = true;
            let open = self.open.iter_mut().map(|open| &mut *open.charges);
            let held = others.iter_mut().map(Charges::each_mut);
            for charge in open.chain(held).filter_map(|charges| charges.get_mut(place)) {
                limit.shift_down(&rollback, charge);
            }
        }
        gave
    }

    /// When the state of the limit at a place last changed, as far as known here.
    pub fn latest(&self, place: usize) -> Time {
        self.latest.get(place).copied().unwrap_or(Time::EPOCH)
    }

    /// How many are open. Each is held until it is cancelled, settled or forgotten.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Forgets one receipt: what it charged stays charged. Whether it was open.
    pub fn discard(&mut self, receipt: Receipt) -> bool {
        let before = self.open.len();
        self.open.retain(|open| open.receipt != receipt);
        self.open.len() < before
    }

    /// Forgets the receipts of reservations made before a time: a store calls this for those that nobody came back
    /// for, so that they do not pile up.
    pub fn expire_made_before(&mut self, time: Time) {
        self.open.retain(|open| open.made >= time);
    }

    /// Forgets the receipts of reservations made before a time whose cost no longer counts: a cancel would give nothing
    /// back.
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
            // The time first: a copy of a long log takes long.
            open.made >= made_before || counts()
        });
    }

    /// When the oldest open reservation was made.
    pub fn oldest(&self) -> Option<Time> {
        self.open.iter().map(|open| open.made).min()
    }

    /// Notes from now on when each of these limits' states changes.
    pub fn fit<A>(&mut self, limits: &[A]) {
        self.latest.resize(limits.len(), Time::EPOCH);
    }
}

/// What a reservation asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveCall {
    /// What to charge.
    pub cost: u32,
    /// How long the caller would wait.
    pub max_wait: Span,
    /// The name of the receipt, which no other open one of this key has.
    pub receipt: Receipt,
}
