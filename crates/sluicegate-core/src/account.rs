//! One key under a list of limits, with its open receipts: every verb, all or nothing.
//!
//! A store that keeps states in its own form calls the same functions: [`crate::all_of`] and
//! [`Receipts`].

use crate::algorithm::{Algorithm, Verb};
use crate::all_of::{check_list, check_within_list, next_window_list, peek_list, take_list, usage_list};
use crate::decision::Decision;
use crate::receipts::{Receipt, Receipts, ReserveCall, ReserveTerms};
use crate::rollback::Times;
use crate::time::{Span, Time};
use crate::usage::Usage;
use crate::verbs::{Unsupported, Verbs as _};
use alloc::vec::Vec;

/// One key. The limits are an argument of each call, since many keys share them. They must always
/// be the same list.
///
/// A call that may change the key first closes the receipts that have expired
/// ([`Receipts::expire`]); others, and calls of cost 0, report what they would if it did.
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
        if cost == 0 {
            return self.peek(limits, now, cost);
        }
        self.expire(limits, now);
        let decision = check_list(limits, &mut self.states, now, cost);
        if decision.allowed() {
            self.receipts.charged(now);
        }
        decision
    }

    /// Decides whether a call would be allowed now. Charges nothing.
    pub fn peek(&mut self, limits: &[A], now: Time, cost: u64) -> Decision {
        self.read(limits, now, |states| peek_list(limits, states, now, cost))
    }

    /// Charges as much as remains, at most `up_to`, and returns how much that was. If nothing
    /// remains, the decision is the denial of cost 1.
    ///
    /// # Errors
    /// If one of the limits does not support this verb.
    pub fn take(&mut self, limits: &[A], now: Time, up_to: u64) -> Result<(Decision, u64), Unsupported> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Take))?;
        if up_to == 0 {
            return Ok((self.peek(limits, now, up_to), 0));
        }
        self.expire(limits, now);
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
        limits.iter().try_for_each(|limit| limit.require(Verb::CheckWithin))?;
        if cost == 0 {
            return Ok(self.peek(limits, now, cost));
        }
        self.expire(limits, now);
        let decision = check_within_list(limits, &mut self.states, now, cost, max_wait)?;
        if decision.allowed() {
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
        limits.iter().try_for_each(|limit| limit.require(Verb::Refund))?;
        if cost == 0 {
            return Ok(self.peek(limits, now, cost));
        }
        self.expire(limits, now);
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
        let (decision, _, receipt) = self.reserve_with(limits, now, cost, max_wait.into())?;
        Ok((decision, receipt))
    }

    /// Charges `cost` now, or as much as the terms say: see [`Receipts::reserve`]. Returns the cost
    /// that was granted as well.
    ///
    /// # Errors
    /// If one of the limits does not support this verb.
    pub fn reserve_with(
        &mut self,
        limits: &[A],
        now: Time,
        cost: u64,
        terms: ReserveTerms,
    ) -> Result<(Decision, u64, Option<Receipt>), Unsupported> {
        let verb = if terms.at_least.is_some() { Verb::ReserveAtLeast } else { Verb::Reserve };
        limits.iter().try_for_each(|limit| limit.require(verb))?;
        self.expire(limits, now);
        let receipt = Receipt(self.next);
        self.next += 1;
        let call = ReserveCall { cost, receipt, terms };
        let (decision, granted) = self.receipts.reserve(limits, &mut self.states, now, call)?;
        Ok((decision, granted, decision.allowed().then_some(receipt)))
    }

    /// Charges more to an open receipt, and restarts its time to live: see [`Receipts::extend`].
    /// Returns `None` if the receipt is not open.
    pub fn extend(
        &mut self,
        limits: &[A],
        now: Time,
        receipt: Receipt,
        cost: u64,
        ttl: Option<Span>,
    ) -> Option<Decision> {
        self.expire_if_open(limits, now, receipt);
        self.receipts.extend(limits, &mut self.states, now, receipt, (cost, ttl))
    }

    /// Cancels a reservation: the part of its cost that still counts is returned to the key.
    /// Returns `false` if there was no such part, or the receipt is used or unknown.
    pub fn cancel(&mut self, limits: &[A], now: Time, receipt: Receipt) -> bool {
        self.expire_if_open(limits, now, receipt);
        self.receipts.cancel(limits, &mut self.states, now, receipt)
    }

    /// Corrects a reservation to what was actually used: the rest is returned as by a cancel, an
    /// excess becomes debt. Returns `false` if the receipt is used or unknown.
    pub fn settle(&mut self, limits: &[A], now: Time, receipt: Receipt, used: u64) -> bool {
        self.expire_if_open(limits, now, receipt);
        self.receipts.settle(limits, &mut self.states, now, receipt, used)
    }

    /// Returns when the next window starts or the next unit is available: the latest of all limits.
    pub fn next_window(&mut self, limits: &[A], now: Time) -> Time {
        self.read(limits, now, |states| next_window_list(limits, states, now))
    }

    /// Returns what the key has used under each limit. Changes nothing.
    pub fn usage(&mut self, limits: &[A], now: Time) -> Vec<Usage> {
        self.read(limits, now, |states| usage_list(limits, states, now).collect())
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

    /// Returns `true` if this receipt was neither used nor noticed as expired.
    pub fn is_open(&self, receipt: Receipt) -> bool {
        self.receipts.is_open(receipt)
    }

    /// Returns the number of open receipts and of their extensions. Each receipt is kept until it
    /// is cancelled, settled or expires.
    pub fn open_receipts(&self) -> usize {
        self.receipts.len()
    }

    /// Expires the receipts of reservations made before a time.
    pub fn expire_receipts(&mut self, limits: &[A], made_before: Time) {
        self.receipts.expire_made_before(limits, made_before);
    }

    /// Converts the key from another list of limits: see [`Receipts::adopt`].
    pub fn adopt(&mut self, limits: &[A], old: &[A], now: Time) {
        self.expire(old, now);
        let times = Times { now, latest: Time::EPOCH };
        self.receipts.adopt((limits, old), &mut self.states, times, A::adopt);
        self.states.truncate(old.len().min(limits.len()));
        self.states.resize_with(limits.len(), A::State::default);
    }

    /// Closes the receipts that have expired.
    fn expire(&mut self, limits: &[A], now: Time) {
        self.fit(limits);
        self.receipts.expire(limits, &mut self.states, now);
    }

    /// Closes the receipts that have expired, for a call that names one. If that is not open, the
    /// call changes nothing.
    fn expire_if_open(&mut self, limits: &[A], now: Time, receipt: Receipt) {
        if self.is_open(receipt) {
            self.expire(limits, now);
        }
    }

    /// Reads the states as they would be if the receipts that have expired were closed now.
    fn read<R>(&mut self, limits: &[A], now: Time, read: impl FnOnce(&[A::State]) -> R) -> R {
        self.fit(limits);
        if !self.receipts.has_expired(now) {
            return read(&self.states);
        }
        let (mut states, mut receipts) = (self.states.clone(), self.receipts.clone());
        receipts.expire(limits, &mut states, now);
        read(&states)
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
