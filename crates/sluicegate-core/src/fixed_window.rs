//! Fixed window: so many in each window, and the count starts again with the next one.
//!
//! In plain words: time is cut into windows; each key may spend `count` in each. Simple, cheap, and what people
//! mean by "1000 a day". Its known weakness is the edge: `count` just before a boundary and `count` just after
//! are both fine, so twice the count can pass within a moment. Where that matters, use a sliding algorithm.
//!
//! ```text
//! 5/60s    [             x x x x x][x x x x x             ]      ten calls within a few seconds
//!          0 s                    60 s                   120 s
//! ```
//!
//! ```text
//! Settings   count, and where windows begin and end: see `Windows`
//! State      in a Cell: at = when the window with the last allowed call ends, a = what was used in it
//! Formula    used = a if now < at, else 0; allow if used + cost <= count
//! Promise    each window admits at most count; any stretch of one period admits at most twice that.
//! Rounding   none: everything is whole.
//! Clock      the end is what is kept, so a step back stays in the window of the last allowed call and its count:
//!            nothing is admitted twice, and nobody waits longer than the step and the usual wait. Before the
//!            first window all is closed, and waits are told until then.
//! Cost       16 bytes a key; a comparison and an addition a decision, a division or the calendar when a window opens.
//!
//! Example    5/60s: six calls at t = 59 s, five pass and the sixth is told to wait 1 s; at 60 s it passes.
//! ```

use crate::algorithm::Algorithm;
use crate::bounds::{OutOfBounds, Rate, checked_count};
use crate::cell::Cell;
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{Span, Time};
use alloc::sync::Arc;
use core::fmt::Debug;

/// The fixed window. Pick it for quotas people talk about: per day, per month, per calendar week.
#[derive(Clone, Debug)]
pub struct FixedWindow {
    count: u32,
    windows: Windows,
}

/// Where windows begin and end.
#[derive(Clone, Debug)]
pub enum Windows {
    /// Aligned to a moment, one after another; closed before it. The Unix epoch is the usual one.
    Aligned {
        /// When the first window begins.
        start: Time,
        /// How long each is, within bounds.
        period: Span,
    },
    /// Opened by the first allowed call with a cost.
    First {
        /// How long each is, within bounds.
        period: Span,
    },
    /// Days, weeks, months or years of a place: the core asks only where the next one begins.
    Calendar(Arc<dyn Calendar>),
}

/// A calendar's windows. The time-zone library lives outside the core, behind this.
pub trait Calendar: Debug + Send + Sync {
    /// The first boundary after `now`, in microseconds since the epoch: the end of the window that holds it. It
    /// may lie beyond the last moment that a [`Time`] can be.
    fn next_boundary(&self, now: Time) -> u64;

    /// What the windows are, such as `month tz=Asia/Shanghai`. Calendars of one name have the same windows.
    fn name(&self) -> &str;
}

impl FixedWindow {
    /// Windows of a rate's period, aligned to `start` (the epoch is the usual one) and closed before it.
    pub fn aligned(rate: Rate, start: Time) -> FixedWindow {
        FixedWindow { count: rate.count(), windows: Windows::Aligned { start, period: rate.period() } }
    }

    /// Windows of a rate's period, each opened by the first allowed call.
    pub fn from_first_call(rate: Rate) -> FixedWindow {
        FixedWindow { count: rate.count(), windows: Windows::First { period: rate.period() } }
    }

    /// The windows of a calendar.
    ///
    /// # Errors
    /// When the count is 0 or above [`crate::bounds::COUNT_MAX`].
    pub fn calendar(count: u64, calendar: Arc<dyn Calendar>) -> Result<FixedWindow, OutOfBounds> {
        let count = checked_count("count", count, 1)?;
        Ok(FixedWindow { count, windows: Windows::Calendar(calendar) })
    }

    /// How much is used in the window that counts now, `None` if no call of this key opened one that still runs.
    #[inline]
    fn running(cell: &Cell, now: Time) -> Option<u32> {
        (now.as_micros() < cell.at).then_some(cell.a)
    }

    /// How long the first window is still away.
    #[inline]
    fn closed_for(&self, now: Time) -> Span {
        match self.windows {
            Windows::Aligned { start, .. } => start.since(now),
            Windows::First { .. } | Windows::Calendar(_) => Span::ZERO,
        }
    }
}

impl Windows {
    /// When the window that holds `now`, or that a call opens now, ends: always after `now`, and so possibly
    /// beyond the last moment that a [`Time`] can be.
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
    fn limit(&self) -> u32 {
        self.count
    }

    #[inline]
    fn remaining(&self, state: &Cell, now: Time) -> u32 {
        if self.closed_for(now) > Span::ZERO {
            return 0;
        }
        self.count.saturating_sub(Self::running(state, now).unwrap_or(0))
    }

    #[inline]
    fn reset_after(&self, state: &Cell, now: Time) -> Span {
        match (self.closed_for(now), Self::running(state, now)) {
            (Span::ZERO, Some(used)) if used > 0 => Span::from_micros(state.at - now.as_micros()),
            (closed_for, _) => closed_for,
        }
    }

    #[inline]
    fn retry_after(&self, state: &Cell, now: Time, _cost: u32) -> Span {
        match self.closed_for(now) {
            Span::ZERO => Span::from_micros(state.at.saturating_sub(now.as_micros())),
            closed_for => closed_for,
        }
    }

    #[inline]
    fn charge(&self, state: &mut Cell, now: Time, cost: u32) -> Span {
        match Self::running(state, now) {
            // Only debt could go beyond 32 bits, and any count above the limit already denies.
            Some(used) => state.a = used.saturating_add(cost),
            // Before the first window there is none to charge. (Only the debt of a call that cost nothing comes here.)
            None if self.closed_for(now) > Span::ZERO => return self.closed_for(now),
            None => *state = Cell { at: self.windows.end(now), a: cost, b: 0 },
        }
        Span::from_micros(state.at - now.as_micros())
    }

    fn refund(&self, state: &mut Cell, now: Time, cost: u32) -> bool {
        let Some(used) = Self::running(state, now) else { return false };
        state.a = used.saturating_sub(cost);
        self.close_if_unused(state);
        used.min(cost) > 0
    }

    /// The pile is a window, named by its end.
    fn record(&self, state: &Cell, cost: u32, _waited: bool) -> Charge {
        Charge::on_stack(cost, state.at, u64::from(state.a))
    }

    fn roll_back(&self, state: &mut Cell, times: Times, charge: &Charge, most: u32) -> Option<Rollback> {
        let used = Self::running(state, times.now).filter(|_| charge.stack == state.at)?;
        let rollback = charge.roll_back(most, u64::from(used))?;
        state.a = used.saturating_sub(u32::try_from(rollback.size()).unwrap_or(u32::MAX));
        self.close_if_unused(state);
        Some(rollback)
    }

    fn shift_down(&self, rollback: &Rollback, charge: &mut Charge) {
        charge.shift_down(rollback);
    }

    fn cap_height(&self, state: &Cell, charge: &mut Charge) {
        charge.cap_height(if charge.stack == state.at { u64::from(state.a) } else { 0 });
    }

    fn next_window(&self, state: &Cell, now: Time) -> Time {
        let end = match (Self::running(state, now), &self.windows) {
            (Some(_), _) if self.closed_for(now) == Span::ZERO => state.at,
            (None, Windows::First { .. }) => return now,
            (_, windows) => windows.end(now),
        };
        Time::saturating_from_micros(end)
    }

    fn is_idle(&self, state: &Cell, now: Time) -> bool {
        Self::running(state, now).is_none_or(|used| used == 0)
    }

    fn adopt(&self, old: &Self, state: &mut Cell, _times: Times) {
        if !self.windows.same(&old.windows) {
            *state = Cell::UNSEEN;
        }
    }
}

impl FixedWindow {
    /// A window that the first call opened is closed when all of it was given back.
    fn close_if_unused(&self, state: &mut Cell) {
        if state.a == 0 && matches!(self.windows, Windows::First { .. }) {
            *state = Cell::UNSEEN;
        }
    }
}
