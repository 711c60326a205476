//! One key under a list of limits, with its open receipts: every verb, all or nothing.
//!
//! A store that keeps states in its own form calls the same functions: [`crate::all_of`] and
//! [`Receipts`].

use crate::algorithm::Algorithm;
use crate::all_of::{check_list, check_within_list, next_window_list, peek_list, take_list, usage_list};
use crate::decision::Decision;
use crate::receipts::{Receipt, Receipts, ReserveCall};
use crate::rollback::Times;
use crate::time::{Span, Time};
use crate::usage::Usage;
use crate::verbs::Unsupported;
use alloc::vec::Vec;

/// One key. The limits are an argument of each call, since many keys share them. They must always
/// be the same list.
///
/// # Panics
/// Every verb panics if the list has another length than before.
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
    /// Decides a call, and charges it to every limit if it is allowed.
    pub fn check(&mut self, limits: &[A], now: Time, cost: u64) -> Decision {
        self.fit(limits);
        let decision = check_list(limits, &mut self.states, now, cost);
        if decision.allowed() && cost > 0 {
            self.receipts.charged(now);
        }
        decision
    }

    /// Decides whether a call would be allowed now. Charges nothing.
    pub fn peek(&mut self, limits: &[A], now: Time, cost: u64) -> Decision {
        self.fit(limits);
        peek_list(limits, &self.states, now, cost)
    }

    /// Charges as much as remains, at most `up_to`, and returns how much that was. If nothing
    /// remains, the decision is the denial of cost 1.
    ///
    /// # Errors
    /// If one of the limits does not support this verb.
    pub fn take(&mut self, limits: &[A], now: Time, up_to: u64) -> Result<(Decision, u64), Unsupported> {
        self.fit(limits);
        let (decision, taken) = take_list(limits, &mut self.states, now, up_to)?;
        if taken > 0 {
            self.receipts.charged(now);
        }
        Ok((decision, taken))
    }

    /// Charges `cost` now, if the caller can act within `max_wait`, after the decision's delay.
    /// This is a reservation without a receipt.
    ///
    /// # Errors
    /// If one of the limits does not support this verb.
    pub fn check_within(
        &mut self,
        limits: &[A],
        now: Time,
        cost: u64,
        max_wait: Span,
    ) -> Result<Decision, Unsupported> {
        self.fit(limits);
        let decision = check_within_list(limits, &mut self.states, now, cost, max_wait)?;
        if decision.allowed() && cost > 0 {
            self.receipts.charged(now);
        }
        Ok(decision)
    }

    /// Returns `cost` under every limit, as far as each allows, and returns the decision for cost
    /// 0.
    ///
    /// # Errors
    /// If one of the limits does not support this verb; then nothing is returned under any of them.
    pub fn refund(&mut self, limits: &[A], now: Time, cost: u64) -> Result<Decision, Unsupported> {
        self.fit(limits);
        self.receipts.refund(limits, &mut self.states, now, cost)
    }

    /// Charges `cost` now, if the caller can act within `max_wait`, after the decision's delay.
    /// Buckets may borrow.
    ///
    /// # Errors
    /// If one of the limits does not support this verb.
    pub fn reserve(
        &mut self,
        limits: &[A],
        now: Time,
        cost: u64,
        max_wait: Span,
    ) -> Result<(Decision, Option<Receipt>), Unsupported> {
        self.fit(limits);
        let receipt = Receipt(self.next);
        self.next += 1;
        let call = ReserveCall { cost, max_wait, receipt };
        let decision = self.receipts.reserve(limits, &mut self.states, now, call)?;
        Ok((decision, decision.allowed().then_some(receipt)))
    }

    /// Cancels a reservation: the part of its cost that still counts is returned to the key.
    /// Returns `false` if there was no such part, or the receipt is used or unknown.
    pub fn cancel(&mut self, limits: &[A], now: Time, receipt: Receipt) -> bool {
        self.receipts.cancel(limits, &mut self.states, now, receipt)
    }

    /// Corrects a reservation to what was actually used: the rest is returned as by a cancel, an
    /// excess becomes debt. Returns `false` if the receipt is used or unknown.
    pub fn settle(&mut self, limits: &[A], now: Time, receipt: Receipt, used: u64) -> bool {
        self.receipts.settle(limits, &mut self.states, now, receipt, used)
    }

    /// Returns when the next window starts or the next unit is available: the latest of all limits.
    pub fn next_window(&mut self, limits: &[A], now: Time) -> Time {
        self.fit(limits);
        next_window_list(limits, &self.states, now)
    }

    /// Returns what the key has used under each limit. Changes nothing.
    pub fn usage(&mut self, limits: &[A], now: Time) -> Vec<Usage> {
        self.fit(limits);
        usage_list(limits, &self.states, now).collect()
    }

    /// Deletes the key's state. Its receipts are void.
    pub fn reset(&mut self) {
        self.states.clear();
        self.receipts = Receipts::default();
    }

    /// Returns `true` if the key is fully recovered under every limit and has no open receipts, so
    /// that a store may drop it.
    pub fn is_idle(&self, limits: &[A], now: Time) -> bool {
        self.receipts.is_empty()
            && limits.iter().zip(&self.states).all(|(limit, state)| limit.is_idle(state, now))
    }

    /// Returns `true` if this receipt is open.
    pub fn is_open(&self, receipt: Receipt) -> bool {
        self.receipts.is_open(receipt)
    }

    /// Returns the number of open receipts. Each is kept until it is cancelled, settled or expires.
    pub fn open_receipts(&self) -> usize {
        self.receipts.len()
    }

    /// Expires the receipts of reservations made before a time.
    pub fn expire_receipts(&mut self, limits: &[A], made_before: Time) {
        self.receipts.expire_made_before(limits, made_before);
    }

    /// Converts the key from another list of limits: see [`Receipts::adopt`].
    pub fn adopt(&mut self, limits: &[A], old: &[A], now: Time) {
        self.fit(old);
        let times = Times { now, latest: Time::EPOCH };
        self.receipts.adopt((limits, old), &mut self.states, times, A::adopt);
        self.states.truncate(old.len().min(limits.len()));
        self.states.resize_with(limits.len(), A::State::default);
    }

    /// Provides a state per limit. Another list than before would skip some, and admit more.
    fn fit(&mut self, limits: &[A]) {
        assert!(
            self.states.is_empty() || self.states.len() == limits.len(),
            "an account always has the same list of limits; see `adopt`"
        );
        self.states.resize_with(limits.len(), A::State::default);
        self.receipts.fit(limits);
    }
}
