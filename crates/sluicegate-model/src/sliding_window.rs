//! Sliding window: the current window's count, plus the share of the previous one that the period
//! covers.

use std::ops::Range;

use crate::algorithm::Algorithm;
use crate::decision::ReceiptId;
use crate::history::History;

/// The charges of one key in the current and the previous window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlidingWindow {
    count: i128,
    period: i128,
    history: History,
}

impl SlidingWindow {
    /// Creates windows that were never charged.
    pub(crate) fn new(count: u64, period: u64) -> Self {
        Self { count: i128::from(count), period: i128::from(period), history: History::default() }
    }

    /// Returns the windows with another count. Absent if the period differs.
    pub(crate) fn converted(&self, new: &Self) -> Option<Self> {
        (self.period == new.period).then(|| Self { count: new.count, ..self.clone() })
    }

    fn current(&self, effective: i128) -> Range<i128> {
        let start = effective.div_euclid(self.period) * self.period;
        start..start + self.period
    }

    fn previous(&self, effective: i128) -> Range<i128> {
        let end = self.current(effective).start;
        end - self.period..end
    }

    /// Returns the estimate times the period, an exact integer.
    fn estimate(&self, effective: i128) -> i128 {
        let current = self.current(effective);
        let elapsed = effective - current.start;
        let previous = self.history.sum(&(current.start - self.period..current.start));
        previous * (self.period - elapsed) + self.history.sum(&current) * self.period
    }
}

impl Algorithm for SlidingWindow {
    fn limit(&self) -> i128 {
        self.count
    }

    fn allows(&self, at: i128, cost: i128) -> bool {
        let estimate = self.estimate(self.history.effective(at));
        estimate + cost * self.period <= self.count * self.period
    }

    fn is_recovered(&self, at: i128) -> bool {
        self.estimate(self.history.effective(at)) == 0
    }

    fn charge(&mut self, at: i128, cost: i128) {
        let effective = self.history.effective(at);
        self.history.drop_before(self.previous(effective).start);
        self.history.add(effective, cost);
    }

    fn refund(&mut self, at: i128, cost: i128) {
        let current = self.current(self.history.effective(at));
        self.history.refund(&current, cost);
    }

    fn remember(&mut self, receipt: ReceiptId, at: i128, _delay: i128) {
        let current = self.current(self.history.effective(at));
        self.history.remember(receipt, current);
    }

    fn roll_back(&mut self, receipt: ReceiptId, at: i128, cost: i128) -> bool {
        let Some(claim) = self.history.forget(receipt) else {
            return false;
        };
        let effective = self.history.effective(at);
        let counting = [self.current(effective), self.previous(effective)];
        counting.contains(&claim.stretch) && self.history.roll_back(&claim, cost)
    }

    fn forget(&mut self, receipt: ReceiptId) {
        self.history.forget(receipt);
    }

    fn next_window(&self, at: i128) -> i128 {
        self.current(self.history.effective(at)).end
    }
}
