//! Sliding window: the current window's count, plus the share of the previous one that the period
//! covers.

use std::ops::Range;

use crate::algorithm::Algorithm;
use crate::history::{History, MOST_DEBT, debt_within_bound};
use crate::receipt::ChargeId;

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
        (self.period == new.period).then(|| {
            let mut converted = Self { count: new.count, ..self.clone() };
            let latest = self.history.effective(0);
            for window in [self.current(latest), self.previous(latest)] {
                converted.history.cap(&window, converted.most());
            }
            converted
        })
    }

    /// Returns the most that a window counts, debt included. It is smaller for a count of 32 bits.
    fn most(&self) -> i128 {
        let small = i128::from(u32::MAX);
        if self.count <= small { small } else { MOST_DEBT }
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

    /// Debt stops where the current window's count is at its bound. The settle is a call at its
    /// time even then.
    fn charge_debt(&mut self, at: i128, cost: i128) {
        let current = self.current(self.history.effective(at));
        self.charge(at, debt_within_bound(self.history.sum(&current), cost, self.most()));
    }

    fn used(&self, at: i128) -> i128 {
        (self.estimate(self.history.effective(at)) + self.period - 1) / self.period
    }

    fn current_window(&self, at: i128) -> Option<Range<i128>> {
        Some(self.current(self.history.effective(at)))
    }

    fn refund(&mut self, at: i128, cost: i128) {
        let current = self.current(self.history.effective(at));
        self.history.refund(&current, cost);
    }

    fn remember(&mut self, charge: ChargeId, at: i128, _delay: i128) {
        let current = self.current(self.history.effective(at));
        self.history.remember(charge, current);
    }

    fn roll_back(&mut self, charge: ChargeId, at: i128, cost: i128) -> bool {
        let Some(claim) = self.history.discard(charge) else {
            return false;
        };
        let effective = self.history.effective(at);
        let counting = [self.current(effective), self.previous(effective)];
        counting.contains(&claim.stretch) && self.history.roll_back(&claim, cost)
    }

    fn discard(&mut self, charge: ChargeId) {
        self.history.discard(charge);
    }

    fn next_window(&self, at: i128) -> i128 {
        self.current(self.history.effective(at)).end
    }
}
