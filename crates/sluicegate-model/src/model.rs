//! The verbs, for one key under a list of rules that must all allow a call.

use crate::decision::{Decision, ReceiptId, Rejected, Usage};
use crate::keys::{Call, KeyId, Keys, Terms};
use crate::receipt::Ttl;
use crate::rule::Rule;

/// One key under one or more rules: [`Keys`] with a single one, whose documentation defines the
/// verbs.
///
/// Every verb takes the caller's clock in whole microseconds. A rule that counts denied calls must
/// be the only one, as the limit grammar requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    keys: Keys,
    key: KeyId,
}

impl Model {
    /// Creates a key that was never charged, under at least one rule.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut keys = Keys::default();
        let key = keys.add(rules);
        Self { keys, key }
    }

    /// Decides a call. If it is allowed, its cost is charged to all rules, otherwise to none.
    pub fn check(&mut self, now: u64, cost: u64) -> Decision {
        self.keys.check(now, &self.call(cost)).decision
    }

    /// Decides whether a call would be allowed. Changes nothing.
    #[must_use]
    pub fn peek(&self, now: u64, cost: u64) -> Decision {
        self.keys.peek(now, &self.call(cost)).decision
    }

    /// Charges as much as remains, up to a cost, and returns how much that was.
    pub fn take(&mut self, now: u64, up_to: u64) -> (Decision, u64) {
        let (answer, taken) = self.keys.take(now, self.key, up_to);
        (answer.decision, taken)
    }

    /// Returns cost to the key. Returns `None`, and changes nothing, if a rule does not support
    /// that.
    pub fn refund(&mut self, now: u64, cost: u64) -> Option<Decision> {
        self.keys.refund(now, self.key, cost).map(|answer| answer.decision)
    }

    /// Charges a call now that acts after its delay, if the delay is at most `max_wait`.
    pub fn reserve(&mut self, now: u64, cost: u64, max_wait: u64) -> (Decision, Option<ReceiptId>) {
        self.reserve_with(now, cost, Terms { max_wait, ttl: None })
    }

    /// Reserves on terms: a wait, a time to live.
    pub fn reserve_with(&mut self, now: u64, cost: u64, terms: Terms) -> (Decision, Option<ReceiptId>) {
        let (answer, receipt) = self.keys.reserve(now, &self.call(cost), terms);
        (answer.decision, receipt)
    }

    /// Reserves as much as remains, from `at_least` up to `cost`, and returns how much that was.
    pub fn reserve_at_least(
        &mut self,
        now: u64,
        cost: u64,
        at_least: u64,
        ttl: Option<Ttl>,
    ) -> (Decision, Option<ReceiptId>, u64) {
        let [call] = self.call(cost);
        let (answer, receipt, granted) = self.keys.reserve_at_least(now, call, at_least, ttl);
        (answer.decision, receipt, granted)
    }

    /// Reserves without a receipt.
    pub fn check_within(&mut self, now: u64, cost: u64, max_wait: u64) -> Decision {
        self.keys.check_within(now, &self.call(cost), max_wait).decision
    }

    /// Charges more to an open receipt, and restarts its time to live.
    ///
    /// # Errors
    /// [`Rejected::NotOpen`].
    pub fn extend(
        &mut self,
        now: u64,
        receipt: ReceiptId,
        cost: u64,
        ttl: Option<u64>,
    ) -> Result<Decision, Rejected> {
        self.keys.extend(now, receipt, &[cost], ttl).map(|answer| answer.decision)
    }

    /// Cancels a reservation: the part of its cost that still counts is returned. Returns `true` if
    /// there was such a part.
    pub fn cancel(&mut self, now: u64, receipt: ReceiptId) -> bool {
        self.keys.cancel(now, receipt)
    }

    /// Corrects a reservation to what was actually used. Returns `false` if the receipt is not
    /// open.
    pub fn settle(&mut self, now: u64, receipt: ReceiptId, used: u64) -> bool {
        self.keys.settle(now, receipt, &[used]) == Ok(true)
    }

    /// Returns `true` while a receipt must be open.
    #[must_use]
    pub fn is_kept(&self, now: u64, receipt: ReceiptId) -> bool {
        self.keys.is_kept(now, receipt)
    }

    /// Returns the usage of each limit, in the order of the rules. Changes nothing.
    #[must_use]
    pub fn usage(&self, now: u64) -> Vec<Usage> {
        self.keys.usage(now, self.key)
    }

    /// Returns when the next window starts: the latest of all rules.
    #[must_use]
    pub fn next_window(&self, now: u64) -> u64 {
        self.keys.next_window(now, self.key)
    }

    /// Deletes the key's state. Its receipts become void.
    pub fn reset(&mut self) {
        self.keys.reset(self.key);
    }

    /// Replaces the rules: see [`Keys::change`].
    pub fn change(&mut self, rules: Vec<Rule>) {
        self.keys.change(self.key, rules);
    }

    fn call(&self, cost: u64) -> [Call; 1] {
        [Call { key: self.key, cost }]
    }
}
