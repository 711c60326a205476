//! Fixed window: a count per window, wherever the windows lie.

use std::ops::Range;

use crate::algorithm::Algorithm;
use crate::history::{History, MOST_DEBT, debt_within_bound};
use crate::receipt::ChargeId;
use crate::rule::Windows;

/// The end of a window without an end: beyond every search.
const END_OF_TIME: i128 = 1 << 80;

/// The windows of one key and the charges in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FixedWindow {
    count: i128,
    windows: Windows,
    /// The beginning of the newest window, if charges open windows.
    opened: Option<i128>,
    history: History,
}

impl FixedWindow {
    /// Creates windows that were never charged.
    pub(crate) fn new(count: u64, windows: Windows) -> Self {
        Self { count: i128::from(count), windows, opened: None, history: History::default() }
    }

    /// Returns the windows with another count. Absent if they lie elsewhere.
    pub(crate) fn converted(&self, new: &Self) -> Option<Self> {
        (self.windows == new.windows).then(|| Self { count: new.count, ..self.clone() })
    }

    /// Returns the window that contains an effective time. Absent before the start, and while none
    /// is open.
    fn window(&self, effective: i128) -> Option<Range<i128>> {
        match &self.windows {
            Windows::Epoch { period } => Some(aligned(effective, 0, *period)),
            Windows::First { period } => {
                let start = self.opened?;
                let end = start + i128::from(*period);
                (effective < end).then_some(start..end)
            }
            Windows::From { start, period } => {
                let start = i128::from(*start);
                (effective >= start).then(|| aligned(effective, start, *period))
            }
            Windows::Boundaries(moments) => {
                let passed = moments.partition_point(|moment| i128::from(*moment) <= effective);
                let start = passed.checked_sub(1).and_then(|last| moments.get(last));
                let end = moments.get(passed);
                Some(
                    start.map_or(0, |start| i128::from(*start))
                        ..end.map_or(END_OF_TIME, |end| i128::from(*end)),
                )
            }
        }
    }

    fn counted(&self, effective: i128) -> i128 {
        self.window(effective).map_or(0, |window| self.history.sum(&window))
    }

    /// Returns `true` before the first window. All calls are denied then, whatever was allowed
    /// before the clock stepped back.
    fn not_started(&self, at: i128) -> bool {
        self.closed_for(at) > 0
    }

    /// Closes a window that a charge opened and whose count is back at 0.
    fn close_if_unused(&mut self) {
        if let Some(start) = self.opened
            && self.counted(start) == 0
        {
            self.opened = None;
            self.history.close();
        }
    }
}

/// Returns the window that contains `time`; one of the windows begins at `origin`.
fn aligned(time: i128, origin: i128, period: u64) -> Range<i128> {
    let period = i128::from(period);
    let start = origin + (time - origin).div_euclid(period) * period;
    start..start + period
}

impl Algorithm for FixedWindow {
    fn limit(&self) -> i128 {
        self.count
    }

    fn allows(&self, at: i128, cost: i128) -> bool {
        let effective = self.history.effective(at);
        !self.not_started(at) && self.counted(effective) + cost <= self.count
    }

    fn is_recovered(&self, at: i128) -> bool {
        let effective = self.history.effective(at);
        !self.not_started(at) && self.counted(effective) == 0
    }

    fn closed_for(&self, at: i128) -> i128 {
        match &self.windows {
            Windows::From { start, .. } => (i128::from(*start) - at).max(0),
            _ => 0,
        }
    }

    /// Before the start there is no window, and a charge (which can only be debt) is void.
    fn charge(&mut self, at: i128, cost: i128) {
        let effective = self.history.effective(at);
        if matches!(self.windows, Windows::First { .. }) && self.window(effective).is_none() {
            self.opened = Some(effective);
        }
        if let Some(window) = self.window(effective) {
            self.history.drop_before(window.start);
            self.history.add(effective, cost);
        }
    }

    /// Debt stops where the window's count is at its bound. The settle is a call at its time even
    /// then.
    fn charge_debt(&mut self, at: i128, cost: i128) {
        let counted = self.counted(self.history.effective(at));
        self.charge(at, debt_within_bound(counted, cost, MOST_DEBT));
    }

    fn used(&self, at: i128) -> i128 {
        self.current_window(at).map_or(0, |window| self.history.sum(&window))
    }

    fn current_window(&self, at: i128) -> Option<Range<i128>> {
        self.window(self.history.effective(at)).filter(|_| !self.not_started(at))
    }

    fn refund(&mut self, at: i128, cost: i128) {
        if let Some(window) = self.window(self.history.effective(at)) {
            self.history.refund(&window, cost);
            self.close_if_unused();
        }
    }

    fn remember(&mut self, charge: ChargeId, at: i128, _delay: i128) {
        if let Some(window) = self.window(self.history.effective(at)) {
            self.history.remember(charge, window);
        }
    }

    fn roll_back(&mut self, charge: ChargeId, at: i128, cost: i128) -> bool {
        let Some(claim) = self.history.discard(charge) else {
            return false;
        };
        if self.window(self.history.effective(at)).as_ref() != Some(&claim.stretch) {
            return false;
        }
        let returned = self.history.roll_back(&claim, cost);
        self.close_if_unused();
        returned
    }

    fn discard(&mut self, charge: ChargeId) {
        self.history.discard(charge);
    }

    fn next_window(&self, at: i128) -> i128 {
        match (self.window(self.history.effective(at)), &self.windows) {
            (_, Windows::From { start, .. }) if self.not_started(at) => i128::from(*start),
            (Some(window), _) => window.end,
            (None, _) => at,
        }
    }
}
