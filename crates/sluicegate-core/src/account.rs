//! One key under a list of limits, with the receipts that are still open: every verb, all or nothing.
//!
//! A store that keeps states in a form of its own calls the same functions: [`crate::all_of`] and [`Receipts`].

use crate::algorithm::Algorithm;
use crate::all_of::{check_list, check_within_list, next_window_list, peek_list, take_list};
use crate::decision::Decision;
use crate::receipts::{Receipt, Receipts, ReserveCall};
use crate::rollback::Times;
use crate::time::{Span, Time};
use crate::verbs::Unsupported;
use alloc::vec::Vec;

/// One key. The limits are handed in with each call, as many keys share them: always the same list, or it panics.
#[derive(Clone, Debug)]
pub struct Account<A: Algorithm> {
    states: Vec<A::State>,
    receipts: Receipts,
    next: u64,
}

impl<A: Algorithm> Default for Account<A> {
    fn default() -> Self {
        Account { states: Vec::new(), receipts: Receipts::default(), next: 0 }
    }
}

impl<A: Algorithm> Account<A> {
    /// May a call of this cost happen now? If so it is charged to every limit.
    pub fn check(&mut self, limits: &[A], now: Time, cost: u32) -> Decision {
        self.fit(limits);
        let decision = check_list(limits, &mut self.states, now, cost);
        if decision.allowed() && cost > 0 {
            self.receipts.charged(now);
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
    pub fn take(&mut self, limits: &[A], now: Time, up_to: u32) -> Result<(Decision, u32), Unsupported> {
        self.fit(limits);
        let (decision, taken) = take_list(limits, &mut self.states, now, up_to)?;
        if taken > 0 {
            self.receipts.charged(now);
        }
        Ok((decision, taken))
    }

    /// Charges `cost` now, to act after the answer's delay, which is at most `max_wait`: a reservation without a receipt.
    ///
    /// # Errors
    /// When one of the limits does not offer this verb.
    pub fn check_within(
        &mut self,
        limits: &[A],
        now: Time,
        cost: u32,
        max_wait: Span,
    ) -> Result<Decision, Unsupported> {
        self.fit(limits);
        let decision = check_within_list(limits, &mut self.states, now, cost, max_wait)?;
        if decision.allowed() && cost > 0 {
            self.receipts.charged(now);
        }
        Ok(decision)
    }

    /// Gives `cost` back to every limit, as far as each allows. The answer is the decision for cost 0.
    ///
    /// # Errors
    /// When one of the limits does not offer this verb; then none is given anything.
    pub fn refund(&mut self, limits: &[A], now: Time, cost: u32) -> Result<Decision, Unsupported> {
        self.fit(limits);
        self.receipts.refund(limits, &mut self.states, now, cost)
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
    ) -> Result<(Decision, Option<Receipt>), Unsupported> {
        self.fit(limits);
        let receipt = Receipt(self.next);
        self.next += 1;
        let call = ReserveCall { cost, max_wait, receipt };
        let decision = self.receipts.reserve(limits, &mut self.states, now, call)?;
        Ok((decision, decision.allowed().then_some(receipt)))
    }

    /// Gives back what still counts of a reservation. Whether that was anything: not if the receipt is used,
    /// unknown or worth nothing any more. The work grows with the number of open receipts.
    pub fn cancel(&mut self, limits: &[A], now: Time, receipt: Receipt) -> bool {
        self.receipts.cancel(limits, &mut self.states, now, receipt)
    }

    /// Says what a reservation really used: the rest is given back as by a cancel, an excess becomes debt.
    /// `false` if the receipt is used or unknown.
    pub fn settle(&mut self, limits: &[A], now: Time, receipt: Receipt, used: u32) -> bool {
        self.receipts.settle(limits, &mut self.states, now, receipt, used)
    }

    /// When the next window starts or the next unit is there: the latest of the limits.
    pub fn next_window(&mut self, limits: &[A], now: Time) -> Time {
        self.fit(limits);
        next_window_list(limits, &self.states, now)
    }

    /// Forgets the key. Its receipts are void.
    pub fn reset(&mut self) {
        self.states.clear();
        self.receipts = Receipts::default();
    }

    /// Whether the key has recovered under every limit and has no open receipts, so that a store may forget it.
    pub fn is_idle(&self, limits: &[A], now: Time) -> bool {
        self.receipts.is_empty()
            && limits.iter().zip(&self.states).all(|(limit, state)| limit.is_idle(state, now))
    }

    /// How many receipts are open. Each is held until it is cancelled, settled or forgotten.
    pub fn open_receipts(&self) -> usize {
        self.receipts.len()
    }

    /// Forgets the receipts of reservations made before a time.
    pub fn expire_receipts(&mut self, made_before: Time) {
        self.receipts.expire_made_before(made_before);
    }

    /// Reads the states that an older version of the same list left: each limit what the one at its place left.
    /// Receipts are void: what they hold is written in the old numbers.
    pub fn adopt(&mut self, limits: &[A], old: &[A], now: Time) {
        self.fit(old);
        for (place, ((limit, old), state)) in limits.iter().zip(old).zip(&mut self.states).enumerate() {
            limit.adopt(old, state, Times { now, latest: self.receipts.latest(place) });
        }
        self.states.resize_with(limits.len(), A::State::default);
        self.receipts = Receipts::default();
    }

    /// A state for each limit. Another list than before would leave some out, and so admit more.
    fn fit(&mut self, limits: &[A]) {
        assert!(
            self.states.is_empty() || self.states.len() == limits.len(),
            "the limits of an account are always the same list; see `adopt`"
        );
        self.states.resize_with(limits.len(), A::State::default);
        self.receipts.fit(limits);
    }
}
