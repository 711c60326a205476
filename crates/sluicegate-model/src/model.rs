//! The verbs, for one key under a list of rules that must all allow a call.

use std::collections::BTreeMap;

use crate::algorithm::{Algorithm, CallKind, admits, delay, remaining, reported, reset_after, retry_after};
use crate::bucket::CENTURY;
use crate::decision::{Decision, ReceiptId, RetryAfter};
use crate::receipt::Receipt;
use crate::rule::Rule;
use crate::state::LimitState;

/// One key under one or more rules.
///
/// Every verb takes the caller's clock in whole microseconds. A rule that counts denied calls must
/// be the only one, as the limit grammar requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub(crate) rules: Vec<Rule>,
    /// The state under each rule; after a change still under the rules before, until the next call.
    pub(crate) limits: Vec<LimitState>,
    /// The open receipts.
    pub(crate) receipts: BTreeMap<ReceiptId, Receipt>,
    /// Never restarts, so that a receipt from before a reset is not taken for a later one.
    receipts_issued: u64,
}

impl Model {
    /// Creates a key that was never charged, under at least one rule.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        let limits = rules.iter().cloned().map(LimitState::new).collect();
        Self { rules, limits, receipts: BTreeMap::new(), receipts_issued: 0 }
    }

    /// Decides a call. If it is allowed, its cost is charged to all rules, otherwise to none.
    pub fn check(&mut self, now: u64, cost: u64) -> Decision {
        let (at, amount) = (i128::from(now), i128::from(cost));
        if cost == 0 {
            return self.peek(now, 0);
        }
        self.convert(at);
        if let Some(denial) = self.denial(at, amount, CallKind::Check) {
            return if denial.1 != RetryAfter::Never && self.counts_denials() {
                self.charge(at, amount);
                self.peek(now, cost)
            } else {
                self.denied(at, denial)
            };
        }
        let delay = self.longest_delay(at, amount, CallKind::Check);
        self.charge(at, amount);
        self.allowed(at, delay)
    }

    /// Decides whether a call would be allowed. Changes nothing.
    #[must_use]
    pub fn peek(&self, now: u64, cost: u64) -> Decision {
        let (at, cost) = (i128::from(now), i128::from(cost));
        let key = self.as_converted(at);
        match key.denial(at, cost, CallKind::Check) {
            Some(denial) => key.denied(at, denial),
            None => key.allowed(at, key.longest_delay(at, cost, CallKind::Check)),
        }
    }

    /// Charges as much as remains, up to a cost, and returns how much that was.
    ///
    /// A rule that counts denied calls does not support this: it decides as a peek and charges
    /// nothing.
    pub fn take(&mut self, now: u64, up_to: u64) -> (Decision, u64) {
        if up_to == 0 || self.counts_denials() {
            return (self.peek(now, up_to), 0);
        }
        let at = i128::from(now);
        self.convert(at);
        let least = self.algorithms().map(|algorithm| remaining(algorithm, at)).min();
        let taken = up_to.min(reported(least.unwrap_or(0)));
        if taken == 0 {
            return (self.peek(now, 1), 0);
        }
        (self.check(now, taken), taken)
    }

    /// Returns cost to the key. Returns `None`, and changes nothing, if a rule does not support
    /// that.
    pub fn refund(&mut self, now: u64, cost: u64) -> Option<Decision> {
        let at = i128::from(now);
        if !self.as_converted(at).algorithms().all(Algorithm::supports_refund) {
            return None;
        }
        if cost > 0 {
            self.convert(at);
            for limit in &mut self.limits {
                limit.algorithm_mut().refund(at, i128::from(cost));
            }
        }
        Some(self.peek(now, 0))
    }

    /// Charges a call now that acts after its delay, if the delay is at most `max_wait`.
    ///
    /// A rule that counts denied calls does not support this: it decides as a peek, without a
    /// receipt.
    pub fn reserve(&mut self, now: u64, cost: u64, max_wait: u64) -> (Decision, Option<ReceiptId>) {
        if self.counts_denials() {
            return (self.peek(now, cost), None);
        }
        let (at, amount) = (i128::from(now), i128::from(cost));
        let kind = CallKind::Reserve { max_wait: i128::from(max_wait).min(CENTURY) };
        self.convert(at);
        if let Some(denial) = self.denial(at, amount, kind) {
            return (self.denied(at, denial), None);
        }
        let receipt = ReceiptId(self.receipts_issued);
        self.receipts_issued += 1;
        self.receipts.insert(receipt, Receipt::new(amount, self.limits.len()));
        let longest_delay = self.longest_delay(at, amount, kind);
        if amount > 0 {
            for limit in &mut self.limits {
                let own_delay = delay(limit.algorithm(), at, amount, kind);
                limit.algorithm_mut().charge(at, amount);
                limit.algorithm_mut().remember(receipt, at, own_delay);
            }
        }
        (self.allowed(at, longest_delay), Some(receipt))
    }

    /// Reserves without a receipt.
    pub fn check_within(&mut self, now: u64, cost: u64, max_wait: u64) -> Decision {
        if cost == 0 {
            return self.peek(now, 0);
        }
        let (decision, receipt) = self.reserve(now, cost, max_wait);
        if let Some(receipt) = receipt {
            self.receipts.remove(&receipt);
            for limit in &mut self.limits {
                limit.algorithm_mut().forget(receipt);
            }
        }
        decision
    }

    /// Returns the part of a reservation that still counts. Returns `true` if that was anything.
    pub fn cancel(&mut self, now: u64, receipt: ReceiptId) -> bool {
        let at = i128::from(now);
        match self.close(at, receipt) {
            Some(Receipt { cost, .. }) => self.roll_back(at, receipt, cost),
            None => false,
        }
    }

    /// Corrects a reservation to what was actually used. Returns `false` if the receipt is used or
    /// unknown.
    pub fn settle(&mut self, now: u64, receipt: ReceiptId, used: u64) -> bool {
        let (at, used) = (i128::from(now), i128::from(used));
        let Some(reserved) = self.close(at, receipt) else {
            return false;
        };
        let cost = reserved.cost;
        if used < cost {
            self.roll_back(at, receipt, cost - used);
            return true;
        }
        for (position, limit) in self.limits.iter_mut().enumerate() {
            limit.algorithm_mut().forget(receipt);
            if used > cost && reserved.has_part(position) {
                limit.algorithm_mut().charge_debt(at, used - cost);
            }
        }
        true
    }

    /// Returns when the next window starts: the latest of all rules.
    #[must_use]
    pub fn next_window(&self, now: u64) -> u64 {
        let at = i128::from(now);
        let key = self.as_converted(at);
        let latest = key.algorithms().map(|algorithm| algorithm.next_window(at)).max();
        reported(latest.unwrap_or(at))
    }

    /// Deletes the key's state. Its receipts become void.
    pub fn reset(&mut self) {
        self.limits = self.rules.iter().cloned().map(LimitState::new).collect();
        self.receipts.clear();
    }

    fn algorithms(&self) -> impl Iterator<Item = &dyn Algorithm> {
        self.limits.iter().map(LimitState::algorithm)
    }

    fn counts_denials(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule, Rule::SlidingLog { count_all: true, .. }))
    }

    /// Converts the key, if the receipt is open, and takes the receipt unless that voids it.
    fn close(&mut self, at: i128, receipt: ReceiptId) -> Option<Receipt> {
        if self.receipts.contains_key(&receipt) {
            self.convert(at);
        }
        self.receipts.remove(&receipt)
    }

    /// Returns the rule that denies the call for longest, the first on a tie, and its wait. `None`
    /// if all allow.
    fn denial(&self, at: i128, cost: i128, kind: CallKind) -> Option<(usize, RetryAfter)> {
        let mut longest: Option<(usize, RetryAfter)> = None;
        for (position, algorithm) in self.algorithms().enumerate() {
            if admits(algorithm, at, cost, kind) {
                continue;
            }
            let wait = retry_after(algorithm, at, cost, kind);
            if longest.is_none_or(|(_, so_far)| wait > so_far) {
                longest = Some((position, wait));
            }
        }
        longest
    }

    fn longest_delay(&self, at: i128, cost: i128, kind: CallKind) -> i128 {
        let delays = self.algorithms().map(|algorithm| delay(algorithm, at, cost, kind));
        delays.max().unwrap_or(0)
    }

    fn charge(&mut self, at: i128, cost: i128) {
        for limit in &mut self.limits {
            limit.algorithm_mut().charge(at, cost);
        }
    }

    fn roll_back(&mut self, at: i128, receipt: ReceiptId, cost: i128) -> bool {
        let mut returned = false;
        for limit in &mut self.limits {
            returned |= limit.algorithm_mut().roll_back(receipt, at, cost);
        }
        returned
    }

    /// Returns the decision for an allowed call: the fields of the rule with the least remaining,
    /// the first on a tie.
    fn allowed(&self, at: i128, delay: i128) -> Decision {
        let tightest = self
            .algorithms()
            .map(|algorithm| (remaining(algorithm, at), algorithm))
            .min_by_key(|(remaining, _)| *remaining);
        let (limit, remaining, reset_after) = match tightest {
            Some((remaining, algorithm)) => (algorithm.limit(), remaining, reset_after(algorithm, at)),
            None => (0, 0, 0),
        };
        Decision {
            allowed: true,
            limit: reported(limit),
            remaining: reported(remaining),
            retry_after: None,
            reset_after: reported(reset_after),
            delay: reported(delay),
            denied_by: None,
        }
    }

    /// Returns the decision for a denied call: all fields of the rule that denied it.
    fn denied(&self, at: i128, (position, retry_after): (usize, RetryAfter)) -> Decision {
        let (limit, remaining, reset_after) = match self.limits.get(position).map(LimitState::algorithm) {
            Some(algorithm) => (algorithm.limit(), remaining(algorithm, at), reset_after(algorithm, at)),
            None => (0, 0, 0),
        };
        Decision {
            allowed: false,
            limit: reported(limit),
            remaining: reported(remaining),
            retry_after: Some(retry_after),
            reset_after: reported(reset_after),
            delay: 0,
            denied_by: Some(position),
        }
    }
}
