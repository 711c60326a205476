//! Fixed window: calls are counted per window, and the count restarts with the next one.
//!
//! Time is divided into windows, and each key may spend `count` in each window. The algorithm is
//! simple and cheap, and what people mean by "1000 per day". Its known weakness is the edge:
//! `count` just before a boundary and `count` just after it are both allowed, so twice the count
//! can be admitted within a moment. Where that matters, use a sliding algorithm.
//!
//! ```text
//! 5/60s    [             x x x x x][x x x x x             ]      ten calls within a few seconds
//!          0 s                    60 s                   120 s
//! ```
//!
//! ```text
//! Settings   count, and where windows begin and end: see `Windows`
//! State      in a Cell: at = the end of the last allowed call's window (in UTC, unless the first
//!            call opens it), a and b = the low and the high half of the cost used in it
//! Formula    used = a if now < at, else 0; allow if used + cost <= count
//! Promise    each window admits at most count, and any stretch of one period at most twice that.
//! Debt       a count stops at `DEBT_MAX`, which is 2 * 10^12; only settling gets there.
//! Rounding   none: everything is whole.
//! Clock      the state keeps the window's end, so after a step back calls still count in the
//!            window of the last allowed call: nothing is admitted twice, and no caller waits
//!            longer than the step plus the usual wait. Before the first window all calls are
//!            denied, and waits end when it opens.
//! Cost       16 bytes per key; a comparison and an addition per decision, and a division or a
//!            calendar look-up when a window opens.
//!
//! Example    5/60s: of six calls at t = 59 s five are allowed; the sixth may retry in 1 s.
//! ```

use crate::algorithm::Algorithm;
use crate::bounds::{DEBT_MAX, OutOfBounds, Rate, checked_count};
use crate::cell::Cell;
use crate::rescaling::Adopted;
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{Span, Time};
use crate::usage::Window;
use crate::utc_ahead::UtcAhead;
use alloc::sync::Arc;
use core::fmt::Debug;

/// The fixed window. Pick it for quotas by the clock or calendar: per hour, per day, per month.
#[derive(Clone, Debug)]
pub struct FixedWindow {
    count: u64,
    windows: Windows,
    /// Zero for windows that the first call opens.
    utc_ahead: UtcAhead,
}

/// Where windows begin and end. Exhaustive on purpose: `same` must compare every kind.
#[derive(Clone, Debug)]
pub enum Windows {
    /// Aligned to a moment, usually the Unix epoch, and closed before it.
    Aligned {
        /// The beginning of the first window.
        start: Time,
        /// The length of a window, within bounds.
        period: Span,
    },
    /// Opened by the first allowed call with a nonzero cost.
    First {
        /// The length of a window, within bounds.
        period: Span,
    },
    /// Days, weeks, months or years in a time zone.
    Calendar(Arc<dyn Calendar>),
}

/// A calendar's windows. The time-zone library lives outside the core, behind this.
pub trait Calendar: Debug + Send + Sync {
    /// Returns the first boundary after `now`, in microseconds since the epoch: the end of the
    /// window that contains it. It may lie beyond [`Time::MAX`].
    fn next_boundary(&self, now: Time) -> u64;

    /// Returns the last boundary that is not after `now`: the beginning of the window that contains
    /// it. It is at least 0, also where that window began before the epoch.
    fn last_boundary(&self, now: Time) -> u64;

    /// Returns a name such as `month tz=Asia/Shanghai`. Calendars of one name have the same
    /// windows.
    fn name(&self) -> &str;
}

impl FixedWindow {
    /// Creates windows of a rate's period, aligned to `start` (usually the epoch) and closed before
    /// it.
    pub fn aligned(rate: Rate, start: Time) -> FixedWindow {
        FixedWindow::new(rate.count(), Windows::Aligned { start, period: rate.period() })
    }

    /// Creates windows of a rate's period, each opened by the first allowed call.
    pub fn from_first_call(rate: Rate) -> FixedWindow {
        FixedWindow::new(rate.count(), Windows::First { period: rate.period() })
    }

    /// Creates calendar windows.
    ///
    /// # Errors
    /// If the count is 0 or above [`crate::bounds::COUNT_MAX`].
    pub fn calendar(count: u64, calendar: Arc<dyn Calendar>) -> Result<FixedWindow, OutOfBounds> {
        let count = checked_count("count", count, 1)?;
        Ok(FixedWindow::new(count, Windows::Calendar(calendar)))
    }

    fn new(count: u64, windows: Windows) -> FixedWindow {
        FixedWindow { count, windows, utc_ahead: UtcAhead::default() }
    }

    /// Aligns the windows to UTC, for a clock that UTC is ahead of by `utc_ahead`. Windows that the
    /// first call opens stay on the clock itself.
    #[must_use]
    pub fn on_clock(mut self, utc_ahead: UtcAhead) -> FixedWindow {
        if !matches!(self.windows, Windows::First { .. }) {
            self.utc_ahead = utc_ahead;
        }
        self
    }

    /// Returns what was used in the key's open window; `None` if it has none.
    #[inline]
    fn running(cell: &Cell, now: Time) -> Option<u64> {
        (now.as_micros() < cell.at).then(|| cell.number())
    }

    /// Returns the time until the first window begins.
    #[inline]
    fn closed_for(&self, now: Time) -> Span {
        match self.windows {
            Windows::Aligned { start, .. } => start.since(now),
            Windows::First { .. } | Windows::Calendar(_) => Span::ZERO,
        }
    }
}

impl Windows {
    /// Returns the end of the window that contains `now`, or that a call now would open. It is
    /// always after `now`, and so may lie beyond [`Time::MAX`].
    fn end(&self, now: Time) -> u64 {
        let micros = now.as_micros();
        match self {
            Windows::Aligned { start, .. } if now < *start => start.as_micros(),
            Windows::Aligned { start, period } => {
                let elapsed = now.since(*start).as_micros() % period.as_micros();
                micros + (period.as_micros() - elapsed)
            }
            Windows::First { period } => micros + period.as_micros(),
            Windows::Calendar(calendar) => calendar.next_boundary(now).max(micros + 1),
        }
    }

    /// Returns the beginning of the window that ends then; 0 if it began before the epoch.
    fn began(&self, end: u64) -> u64 {
        match self {
            Windows::Aligned { period, .. } | Windows::First { period } => {
                end.saturating_sub(period.as_micros())
            }
            Windows::Calendar(calendar) => {
                calendar.last_boundary(Time::saturating_from_micros(end.saturating_sub(1)))
            }
        }
    }

    fn same(&self, other: &Windows) -> bool {
        match (self, other) {
            (
                Windows::Aligned { start, period },
                Windows::Aligned { start: other_start, period: other_period },
            ) => (start, period) == (other_start, other_period),
            (Windows::First { period }, Windows::First { period: other_period }) => period == other_period,
            (Windows::Calendar(calendar), Windows::Calendar(other)) => calendar.name() == other.name(),
            _ => false,
        }
    }
}

impl Algorithm for FixedWindow {
    type State = Cell;

    #[inline]
    fn limit(&self) -> u64 {
        self.count
    }

    #[inline]
    fn remaining(&self, state: &Cell, now: Time) -> u64 {
        let now = self.utc_ahead.to_utc(now);
        if self.closed_for(now) > Span::ZERO {
            return 0;
        }
        self.count.saturating_sub(Self::running(state, now).unwrap_or(0))
    }

    fn used(&self, state: &Cell, now: Time) -> u64 {
        let now = self.utc_ahead.to_utc(now);
        // Before the first window no cost is charged, whatever a later window has counted.
        let running = Self::running(state, now).filter(|_| self.closed_for(now) == Span::ZERO);
        running.unwrap_or(0)
    }

    fn window(&self, state: &Cell, now: Time) -> Option<Window> {
        let ahead = self.utc_ahead.micros();
        let utc = now.shifted(ahead);
        if self.closed_for(utc) > Span::ZERO {
            return None;
        }
        let end = match (Self::running(state, utc), &self.windows) {
            (Some(_), _) => state.at,
            (None, Windows::First { .. }) => return None,
            (None, windows) => windows.end(utc),
        };
        Some(Window::new(self.windows.began(end), end).shifted(ahead.saturating_neg()))
    }

    #[inline]
    fn reset_after(&self, state: &Cell, now: Time) -> Span {
        let now = self.utc_ahead.to_utc(now);
        match (self.closed_for(now), Self::running(state, now)) {
            (Span::ZERO, Some(used)) if used > 0 => Span::from_micros(state.at - now.as_micros()),
            (closed_for, _) => closed_for,
        }
    }

    #[inline]
    fn retry_after(&self, state: &Cell, now: Time, _cost: u64) -> Span {
        let now = self.utc_ahead.to_utc(now);
        match self.closed_for(now) {
            Span::ZERO => Span::from_micros(state.at.saturating_sub(now.as_micros())),
            closed_for => closed_for,
        }
    }

    #[inline]
    fn charge(&self, state: &mut Cell, now: Time, cost: u64) -> Span {
        let now = self.utc_ahead.to_utc(now);
        match Self::running(state, now) {
            Some(used) => *state = Cell::of_number(state.at, used.saturating_add(cost).min(DEBT_MAX)),
            // Before the first window there is none to charge. (Only the settle of a reservation of
            // cost 0 gets here: its debt is not charged.)
            None if self.closed_for(now) > Span::ZERO => return self.closed_for(now),
            None => *state = Cell::of_number(self.windows.end(now), cost.min(DEBT_MAX)),
        }
        Span::from_micros(state.at - now.as_micros())
    }

    fn refund(&self, state: &mut Cell, now: Time, cost: u64) -> bool {
        let now = self.utc_ahead.to_utc(now);
        let Some(used) = Self::running(state, now) else { return false };
        *state = Cell::of_number(state.at, used.saturating_sub(cost));
        self.close_if_unused(state);
        used.min(cost) > 0
    }

    /// The stack is a window, identified by its end.
    fn record(&self, state: &Cell, cost: u64, _waited: bool) -> Charge {
        Charge::on_stack(cost, state.at, state.number())
    }

    fn roll_back(&self, state: &mut Cell, times: Times, charge: &Charge, most: u64) -> Option<Rollback> {
        let now = self.utc_ahead.to_utc(times.now);
        let used = Self::running(state, now).filter(|_| charge.stack == state.at)?;
        let rollback = charge.roll_back(most, used)?;
        *state = Cell::of_number(state.at, used.saturating_sub(rollback.size()));
        self.close_if_unused(state);
        Some(rollback)
    }

    fn shift_down(&self, rollback: &Rollback, charge: &mut Charge) {
        charge.shift_down(rollback);
    }

    fn cap_height(&self, state: &Cell, charge: &mut Charge) {
        charge.cap_height(if charge.stack == state.at { state.number() } else { 0 });
    }

    fn next_window(&self, state: &Cell, now: Time) -> Time {
        let ahead = self.utc_ahead.micros();
        let utc = now.shifted(ahead);
        let end = match (Self::running(state, utc), &self.windows) {
            (Some(_), _) if self.closed_for(utc) == Span::ZERO => state.at,
            (None, Windows::First { .. }) => return now,
            (_, windows) => windows.end(utc),
        };
        Time::saturating_from_micros(end).shifted(ahead.saturating_neg())
    }

    fn is_idle(&self, state: &Cell, now: Time) -> bool {
        let now = self.utc_ahead.to_utc(now);
        Self::running(state, now).is_none_or(|used| used == 0)
    }

    fn adopt(&self, old: &Self, state: &mut Cell, _times: Times) -> Adopted {
        if !self.windows.same(&old.windows) {
            *state = Cell::UNSEEN;
            return Adopted::Fresh;
        }
        Adopted::Kept
    }
}

impl FixedWindow {
    /// Closes a window that a call opened and whose charges were all returned.
    fn close_if_unused(&self, state: &mut Cell) {
        if state.number() == 0 && matches!(self.windows, Windows::First { .. }) {
            *state = Cell::UNSEEN;
        }
    }
}
