//! Sliding log: every charge of the last period, one by one.

use std::ops::Range;

use crate::algorithm::Algorithm;
use crate::history::{History, MOST_DEBT, debt_within_bound};
use crate::receipt::ChargeId;

/// The log of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlidingLog {
    count: i128,
    period: i128,
    count_all: bool,
    history: History,
}

impl SlidingLog {
    /// Creates an empty log.
    pub(crate) fn new(count: u64, period: u64, count_all: bool) -> Self {
        Self { count: i128::from(count), period: i128::from(period), count_all, history: History::default() }
    }

    /// Returns the log under other parameters: the calls keep their times. Those that have aged out
    /// must not count again under a longer period; under another one they do only if the clock
    /// steps back, as they would have without the change.
    pub(crate) fn converted(&self, new: &Self, at: i128) -> Self {
        let mut history = self.history.clone();
        if new.period > self.period {
            history.drop_before(self.covered(history.effective(at)).start);
        }
        Self { history, count: new.count, period: new.period, count_all: new.count_all }
    }

    /// Returns the period that ends at an effective time, which is part of it; the moment a period
    /// before is not.
    fn covered(&self, effective: i128) -> Range<i128> {
        effective - self.period + 1..effective + 1
    }

    fn add(&mut self, at: i128, cost: i128) {
        let effective = self.history.effective(at);
        self.history.drop_before(self.covered(effective).start);
        self.history.add(effective, cost);
    }

    fn sum(&self, at: i128) -> i128 {
        let effective = self.history.effective(at);
        self.history.sum(&self.covered(effective))
    }
}

impl Algorithm for SlidingLog {
    fn limit(&self) -> i128 {
        self.count
    }

    fn allows(&self, at: i128, cost: i128) -> bool {
        self.sum(at) + cost <= self.count
    }

    fn is_recovered(&self, at: i128) -> bool {
        self.sum(at) == 0
    }

    fn charge(&mut self, at: i128, cost: i128) {
        self.add(at, cost);
        if self.count_all {
            self.history.keep_newest(self.count);
        }
    }

    /// Debt stops where the log's sum is at its bound. If nothing is added there is no entry, and
    /// so no time to remember. All of it counts, denied calls or not: a refund returns it first.
    fn charge_debt(&mut self, at: i128, cost: i128) {
        let debt = debt_within_bound(self.sum(at), cost, MOST_DEBT);
        if debt > 0 {
            self.add(at, debt);
        }
    }

    fn used(&self, at: i128) -> i128 {
        self.sum(at)
    }

    fn refund(&mut self, at: i128, cost: i128) {
        let covered = self.covered(self.history.effective(at));
        self.history.refund_newest(&covered, cost);
    }

    fn remember(&mut self, charge: ChargeId, at: i128, _delay: i128) {
        let effective = self.history.effective(at);
        self.history.remember(charge, effective..effective + 1);
    }

    fn roll_back(&mut self, charge: ChargeId, at: i128, cost: i128) -> bool {
        let Some(claim) = self.history.discard(charge) else {
            return false;
        };
        let covered = self.covered(self.history.effective(at));
        covered.contains(&claim.stretch.start) && self.history.roll_back(&claim, cost)
    }

    fn discard(&mut self, charge: ChargeId) {
        self.history.discard(charge);
    }

    fn next_window(&self, at: i128) -> i128 {
        let covered = self.covered(self.history.effective(at));
        self.history.oldest(&covered).map_or(at, |oldest| oldest + self.period)
    }
}
