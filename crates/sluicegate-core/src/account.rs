//! One key under a list of limits, with the receipts that are still open: every verb, all or nothing.
//!
//! This is what a store keeps for a key that reserves. Keys that are only checked need no more than their states
//! ([`crate::several::check_list`]).

use crate::algorithm::{Algorithm, Verb};
use crate::decision::Decision;
use crate::pile::{Charge, Times};
use crate::several::{Part, check_list, peek_list, reserve_all};
use crate::time::{Span, Time};
use crate::verbs::{NotOffered, Verbs as _};
use alloc::vec::Vec;

/// One key. The limits are handed in with each call, as many keys share them: always the same list, or it panics.
#[derive(Clone, Debug)]
pub struct Account<A: Algorithm> {
    states: Vec<A::State>,
    /// When each limit's state last changed, which only cancels ask for.
    latest: Vec<Time>,
    open: Vec<Open>,
    next: u64,
}

/// A reservation that was neither cancelled nor settled yet.
#[derive(Clone, Debug)]
struct Open {
    receipt: Receipt,
    made: Time,
    /// One for each limit.
    charges: Vec<Charge>,
}

/// Names one reservation of one account, good for one cancel or settle. Another account has receipts of the same
/// names, so whoever hands them out adds whose they are, and drops them with the account.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Receipt(u64);

impl<A: Algorithm> Default for Account<A> {
    fn default() -> Self {
        Account { states: Vec::new(), latest: Vec::new(), open: Vec::new(), next: 0 }
    }
}

impl<A: Algorithm> Account<A> {
    /// May a call of this cost happen now? If so it is charged to every limit.
    pub fn check(&mut self, limits: &[A], now: Time, cost: u32) -> Decision {
        self.fit(limits);
        let decision = check_list(limits, &mut self.states, now, cost);
        if decision.allowed() && cost > 0 {
            self.changed(now);
        }
        decision
    }

    /// Would a call of this cost be allowed now? Nothing is charged.
    pub fn peek(&mut self, limits: &[A], now: Time, cost: u32) -> Decision {
        self.fit(limits);
        peek_list(limits, &self.states, now, cost)
    }

    /// Takes `up_to` or as much of it as remains, and says how much that was. When nothing remains the answer is
    /// the denial of cost 1.
    ///
    /// # Errors
    /// When one of the limits does not offer this verb.
    pub fn take(&mut self, limits: &[A], now: Time, up_to: u32) -> Result<(Decision, u32), NotOffered> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Take))?;
        let taken = up_to.min(self.peek(limits, now, 0).remaining());
        if taken == 0 {
            return Ok((self.peek(limits, now, up_to.min(1)), 0));
        }
        Ok((self.check(limits, now, taken), taken))
    }

    /// Gives `cost` back to every limit, as far as each allows. The answer is the decision for cost 0.
    ///
    /// # Errors
    /// When one of the limits does not offer this verb; then none is given anything.
    pub fn refund(&mut self, limits: &[A], now: Time, cost: u32) -> Result<Decision, NotOffered> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Refund))?;
        self.fit(limits);
        for (place, ((limit, state), latest)) in
            limits.iter().zip(&mut self.states).zip(&mut self.latest).enumerate()
        {
            if limit.refund(state, now, cost) {
                *latest = now.max(*latest);
                for open in self.open.iter_mut().filter_map(|open| open.charges.get_mut(place)) {
                    limit.lower_to(state, open);
                }
            }
        }
        Ok(self.peek(limits, now, 0))
    }

    /// Charges `cost` now, to act after the answer's delay, which is at most `max_wait`. Buckets may borrow.
    ///
    /// # Errors
    /// When one of the limits does not offer this verb.
    pub fn reserve(
        &mut self,
        limits: &[A],
        now: Time,
        cost: u32,
        max_wait: Span,
    ) -> Result<(Decision, Option<Receipt>), NotOffered> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Reserve))?;
        self.fit(limits);
        let mut parts: Vec<Part<'_, A>> =
            limits.iter().zip(&mut self.states).map(|(limit, state)| Part { limit, state, cost }).collect();
        let (decision, charges) = reserve_all(&mut parts, now, max_wait);
        let Some(charges) = charges else { return Ok((decision, None)) };
        if cost > 0 {
            self.changed(now);
        }
        let receipt = Receipt(self.next);
        self.next += 1;
        self.open.push(Open { receipt, made: now, charges });
        Ok((decision, Some(receipt)))
    }

    /// Gives back what still counts of a reservation. Whether that was anything: not if the receipt is used,
    /// unknown or worth nothing any more. The work grows with the number of open receipts.
    pub fn cancel(&mut self, limits: &[A], now: Time, receipt: Receipt) -> bool {
        self.close(limits, now, receipt, 0) == Some(true)
    }

    /// Says what a reservation really used: the rest is given back as by a cancel, an excess becomes debt.
    /// `false` if the receipt is used or unknown.
    pub fn settle(&mut self, limits: &[A], now: Time, receipt: Receipt, used: u32) -> bool {
        self.close(limits, now, receipt, used).is_some()
    }

    /// Settles a receipt. Whether anything was given back; `None` if it is not open.
    fn close(&mut self, limits: &[A], now: Time, receipt: Receipt, used: u32) -> Option<bool> {
        let place = self.open.iter().position(|open| open.receipt == receipt)?;
        let Open { charges, .. } = self.open.swap_remove(place);
        let mut gave = false;
        for (place, (((limit, state), latest), charge)) in
            limits.iter().zip(&mut self.states).zip(&mut self.latest).zip(&charges).enumerate()
        {
            let cut = limit.settle_charge(state, Times { now, latest: *latest }, charge, used);
            if cut.is_some() || used > charge.cost() {
                *latest = now.max(*latest);
            }
            let Some(cut) = cut else { continue };
            gave = true;
            for open in self.open.iter_mut().filter_map(|open| open.charges.get_mut(place)) {
                limit.close_gap(&cut, open);
            }
        }
        Some(gave)
    }

    /// When the next window starts or the next unit is there: the latest of the limits.
    pub fn next_window(&mut self, limits: &[A], now: Time) -> Time {
        self.fit(limits);
        let both = limits.iter().zip(&self.states);
        both.map(|(limit, state)| limit.next_window(state, now)).max().unwrap_or(now)
    }

    /// Forgets the key. Its receipts are void.
    pub fn reset(&mut self) {
        self.states.clear();
        self.latest.clear();
        self.open.clear();
    }

    /// Whether the key has recovered under every limit and has no open receipts, so that a store may forget it.
    pub fn is_idle(&self, limits: &[A], now: Time) -> bool {
        self.open.is_empty()
            && limits.iter().zip(&self.states).all(|(limit, state)| limit.is_idle(state, now))
    }

    /// How many receipts are open. Each is held until it is cancelled, settled or forgotten.
    pub fn open_receipts(&self) -> usize {
        self.open.len()
    }

    /// Forgets the receipts of reservations made before a time: a store calls this for those that nobody came back
    /// for, so that they do not pile up.
    pub fn forget_receipts(&mut self, made_before: Time) {
        self.open.retain(|open| open.made >= made_before);
    }

    /// Reads the states that an older version of the same list left: each limit what the one at its place left.
    /// Receipts are void: what they hold is written in the old numbers.
    pub fn adopt(&mut self, limits: &[A], old: &[A], now: Time) {
        self.fit(old);
        for (((limit, old), state), latest) in limits.iter().zip(old).zip(&mut self.states).zip(&self.latest)
        {
            limit.adopt(old, state, Times { now, latest: *latest });
        }
        self.states.resize_with(limits.len(), A::State::default);
        // Only receipts ask for it, and there is none left.
        self.latest = alloc::vec![Time::EPOCH; limits.len()];
        self.open.clear();
    }

    /// A state for each limit. Another list than before would leave some out, and so admit more.
    fn fit(&mut self, limits: &[A]) {
        assert!(
            self.states.is_empty() || self.states.len() == limits.len(),
            "the limits of an account are always the same list; see `adopt`"
        );
        self.states.resize_with(limits.len(), A::State::default);
        self.latest.resize(limits.len(), Time::EPOCH);
    }

    fn changed(&mut self, now: Time) {
        self.latest.iter_mut().for_each(|latest| *latest = now.max(*latest));
    }
}
