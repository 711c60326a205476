//! The verbs, for one key under a list of rules that must all agree.

use std::collections::BTreeMap;

use crate::answer::{Answer, ReceiptId, RetryAfter};
use crate::bucket::{Bucket, CENTURY};
use crate::fixed_window::FixedWindow;
use crate::gate::{Ask, Gate, admits, delay, remaining, reset_after, retry_after, told};
use crate::rule::Rule;
use crate::sliding_log::SlidingLog;
use crate::sliding_window::SlidingWindow;
use crate::smooth::Smooth;

/// One key under one or more rules.
///
/// Every verb takes the caller's clock in whole microseconds. A rule that counts denied calls must stand
/// alone, as the limit grammar demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    rules: Vec<Rule>,
    states: Vec<State>,
    /// The cost of each receipt that is still good for a cancel or a settle.
    receipts: BTreeMap<ReceiptId, i128>,
    /// Never starts again, so that a receipt from before a reset is not taken for a later one.
    receipts_given: u64,
}

/// The state of the key under one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Bucket(Bucket),
    Fixed(FixedWindow),
    Log(SlidingLog),
    Sliding(SlidingWindow),
    Smooth(Smooth),
}

impl State {
    fn new(rule: &Rule) -> Self {
        match rule {
            Rule::Bucket { count, period, burst, initial } => {
                Self::Bucket(Bucket::new(*count, *period, *burst, *initial))
            }
            Rule::Pacer { count, period, queue } => Self::Bucket(Bucket::pacer(*count, *period, *queue)),
            Rule::FixedWindow { count, windows } => Self::Fixed(FixedWindow::new(*count, windows.clone())),
            Rule::SlidingLog { count, period, count_all } => {
                Self::Log(SlidingLog::new(*count, *period, *count_all))
            }
            Rule::SlidingWindow { count, period } => Self::Sliding(SlidingWindow::new(*count, *period)),
            Rule::Smooth(rule) => Self::Smooth(Smooth::new(rule)),
        }
    }

    fn gate(&self) -> &dyn Gate {
        match self {
            Self::Bucket(gate) => gate,
            Self::Fixed(gate) => gate,
            Self::Log(gate) => gate,
            Self::Sliding(gate) => gate,
            Self::Smooth(gate) => gate,
        }
    }

    fn gate_mut(&mut self) -> &mut dyn Gate {
        match self {
            Self::Bucket(gate) => gate,
            Self::Fixed(gate) => gate,
            Self::Log(gate) => gate,
            Self::Sliding(gate) => gate,
            Self::Smooth(gate) => gate,
        }
    }
}

impl Model {
    /// A key that was never charged, under at least one rule.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        let states = rules.iter().map(State::new).collect();
        Self { rules, states, receipts: BTreeMap::new(), receipts_given: 0 }
    }

    /// May this call go ahead? If so, its cost is charged to all rules; if not, to none.
    pub fn check(&mut self, now: u64, cost: u64) -> Answer {
        let (at, amount) = (i128::from(now), i128::from(cost));
        if cost == 0 {
            return self.peek(now, 0);
        }
        if let Some(denial) = self.denial(at, amount, Ask::Check) {
            return if denial.1 != RetryAfter::Never && self.counts_denials() {
                self.charge(at, amount);
                self.peek(now, cost)
            } else {
                self.denied(at, denial)
            };
        }
        let delay = self.longest_delay(at, amount, Ask::Check);
        self.charge(at, amount);
        self.allowed(at, delay)
    }

    /// Would this call be allowed? Nothing changes.
    #[must_use]
    pub fn peek(&self, now: u64, cost: u64) -> Answer {
        let (at, cost) = (i128::from(now), i128::from(cost));
        match self.denial(at, cost, Ask::Check) {
            Some(denial) => self.denied(at, denial),
            None => self.allowed(at, self.longest_delay(at, cost, Ask::Check)),
        }
    }

    /// Takes as much as is there, up to a cost. Also tells how much was taken.
    ///
    /// A rule that counts denied calls does not offer this: it answers as a peek and takes nothing.
    pub fn take(&mut self, now: u64, up_to: u64) -> (Answer, u64) {
        if up_to == 0 || self.counts_denials() {
            return (self.peek(now, up_to), 0);
        }
        let at = i128::from(now);
        let least = self.gates().map(|gate| remaining(gate, at)).min();
        let taken = up_to.min(told(least.unwrap_or(0)));
        if taken == 0 {
            return (self.peek(now, 1), 0);
        }
        (self.check(now, taken), taken)
    }

    /// Gives cost back. `None`, and nothing happens, if a rule does not offer that.
    pub fn refund(&mut self, now: u64, cost: u64) -> Option<Answer> {
        if !self.gates().all(Gate::offers_refund) {
            return None;
        }
        for state in &mut self.states {
            state.gate_mut().refund(i128::from(now), i128::from(cost));
        }
        Some(self.peek(now, 0))
    }

    /// Charges now a call that acts after its delay, if the delay is at most `max_wait`.
    ///
    /// A rule that counts denied calls does not offer this: it answers as a peek and gives no receipt.
    pub fn reserve(&mut self, now: u64, cost: u64, max_wait: u64) -> (Answer, Option<ReceiptId>) {
        if self.counts_denials() {
            return (self.peek(now, cost), None);
        }
        let (at, amount) = (i128::from(now), i128::from(cost));
        let ask = Ask::Reserve { max_wait: i128::from(max_wait).min(CENTURY) };
        if let Some(denial) = self.denial(at, amount, ask) {
            return (self.denied(at, denial), None);
        }
        let receipt = ReceiptId(self.receipts_given);
        self.receipts_given += 1;
        self.receipts.insert(receipt, amount);
        let longest_delay = self.longest_delay(at, amount, ask);
        if amount > 0 {
            for state in &mut self.states {
                let own_delay = delay(state.gate(), at, amount, ask);
                state.gate_mut().charge(at, amount);
                state.gate_mut().remember(receipt, at, own_delay);
            }
        }
        (self.allowed(at, longest_delay), Some(receipt))
    }

    /// Charges now a call that acts after its delay, if the delay is at most `max_wait`: a reservation without a receipt.
    pub fn check_within(&mut self, now: u64, cost: u64, max_wait: u64) -> Answer {
        let (answer, receipt) = self.reserve(now, cost, max_wait);
        if let Some(receipt) = receipt {
            self.receipts.remove(&receipt);
            for state in &mut self.states {
                state.gate_mut().forget(receipt);
            }
        }
        answer
    }

    /// Gives back what still counts of a reservation. True if that was anything.
    pub fn cancel(&mut self, now: u64, receipt: ReceiptId) -> bool {
        match self.receipts.remove(&receipt) {
            Some(cost) => self.give_back(i128::from(now), receipt, cost),
            None => false,
        }
    }

    /// Corrects a reservation to what was really used. True unless the receipt is used or unknown.
    pub fn settle(&mut self, now: u64, receipt: ReceiptId, used: u64) -> bool {
        let (at, used) = (i128::from(now), i128::from(used));
        let Some(cost) = self.receipts.remove(&receipt) else {
            return false;
        };
        if used < cost {
            self.give_back(at, receipt, cost - used);
            return true;
        }
        for state in &mut self.states {
            state.gate_mut().forget(receipt);
            if used > cost {
                state.gate_mut().charge_debt(at, used - cost);
            }
        }
        true
    }

    /// When the next window starts, under the rule where that is the latest.
    #[must_use]
    pub fn next_window(&self, now: u64) -> u64 {
        let at = i128::from(now);
        let latest = self.gates().map(|gate| gate.next_window(at)).max();
        told(latest.unwrap_or(at))
    }

    /// Forgets the key. Its receipts become void.
    pub fn reset(&mut self) {
        self.states = self.rules.iter().map(State::new).collect();
        self.receipts.clear();
    }

    fn gates(&self) -> impl Iterator<Item = &dyn Gate> {
        self.states.iter().map(State::gate)
    }

    fn counts_denials(&self) -> bool {
        self.gates().any(Gate::counts_denials)
    }

    /// The rule that denies the call for longest, the first of equals, and for how long. None if all allow.
    fn denial(&self, at: i128, cost: i128, ask: Ask) -> Option<(usize, RetryAfter)> {
        let mut longest: Option<(usize, RetryAfter)> = None;
        for (place, gate) in self.gates().enumerate() {
            if admits(gate, at, cost, ask) {
                continue;
            }
            let wait = retry_after(gate, at, cost, ask);
            if longest.is_none_or(|(_, so_far)| wait > so_far) {
                longest = Some((place, wait));
            }
        }
        longest
    }

    fn longest_delay(&self, at: i128, cost: i128, ask: Ask) -> i128 {
        let delays = self.gates().map(|gate| delay(gate, at, cost, ask));
        delays.max().unwrap_or(0)
    }

    fn charge(&mut self, at: i128, cost: i128) {
        for state in &mut self.states {
            state.gate_mut().charge(at, cost);
        }
    }

    fn give_back(&mut self, at: i128, receipt: ReceiptId, cost: i128) -> bool {
        let mut returned = false;
        for state in &mut self.states {
            returned |= state.gate_mut().give_back(receipt, at, cost);
        }
        returned
    }

    /// The answer to an allowed call: the fields of the rule with the least remaining, the first of equals.
    fn allowed(&self, at: i128, delay: i128) -> Answer {
        let tightest =
            self.gates().map(|gate| (remaining(gate, at), gate)).min_by_key(|(remaining, _)| *remaining);
        let (limit, remaining, reset_after) = match tightest {
            Some((remaining, gate)) => (gate.limit(), remaining, reset_after(gate, at)),
            None => (0, 0, 0),
        };
        Answer {
            allowed: true,
            limit: told(limit),
            remaining: told(remaining),
            retry_after: None,
            reset_after: told(reset_after),
            delay: told(delay),
            denied_by: None,
        }
    }

    /// The answer to a denied call: all fields of the rule that denied it.
    fn denied(&self, at: i128, (place, retry_after): (usize, RetryAfter)) -> Answer {
        let (limit, remaining, reset_after) = match self.states.get(place).map(State::gate) {
            Some(gate) => (gate.limit(), remaining(gate, at), reset_after(gate, at)),
            None => (0, 0, 0),
        };
        Answer {
            allowed: false,
            limit: told(limit),
            remaining: told(remaining),
            retry_after: Some(retry_after),
            reset_after: told(reset_after),
            delay: 0,
            denied_by: Some(place),
        }
    }
}
