//! Sliding window: two counters, the older one fading out. Constant memory, close to the log.
//!
//! Calls are counted per window, aligned to UTC, and those of the previous window are assumed to
//! have come evenly. As the current window elapses, less and less of the previous one lies within
//! the last period: its weight fades from 1 to 0. The estimate is the weighted previous count plus
//! the current count.
//!
//! ```text
//!    previous window      current window
//! |      prev = 80     |   cur = 30            |       estimate = 80 * (P - e) / P + 30
//! |        [-----------+---e---> now]          |       at e = P/4: 60 + 30 = 90
//! ```
//!
//! ```text
//! Settings   count per period
//! State      in a Cell: at = when a call was last allowed (in UTC), a = prev and b = cur as of that window
//! Formula    used = ceil(prev * (period - e) / period) + cur; allow if used + cost <= count
//!            (rounding the exact estimate up changes no decision, since count and cost are whole)
//! Promise    the estimate never exceeds count. The true number in any period stays below twice the
//!            count. It comes near that only if one window's calls bunch at its end and the next
//!            window's come as soon as they may; evenly spread calls are held to the count itself.
//! Rounding   none in the decision; waits are rounded up, remaining is rounded down.
//! Clock      a call earlier than the last allowed one is decided at that one's time; its waits
//!            count from its own.
//! Cost       16 bytes per key; two divisions per decision.
//!
//! Example    10/10s: ten calls at t = 0. At 15 s half of them count, so five calls are allowed.
//! ```

use crate::algorithm::Algorithm;
use crate::bounds::Rate;
use crate::cell::Cell;
use crate::rescaling::Adopted;
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{Span, Time};
use crate::usage::Window;
use crate::utc_ahead::UtcAhead;

/// The sliding window. Pick it when the edge burst of a fixed window hurts and a log would be too
/// large.
#[derive(Clone, Debug)]
pub struct SlidingWindow {
    rate: Rate,
    utc_ahead: UtcAhead,
}

/// The two counters as they are at one moment.
#[derive(Clone, Copy)]
struct Counters {
    prev: u32,
    cur: u32,
    /// The beginning of the window that `cur` counts.
    began: u64,
    /// The time since then.
    elapsed: u64,
}

impl SlidingWindow {
    /// Creates a limit of about `count` in any `period`.
    pub fn new(rate: Rate) -> SlidingWindow {
        SlidingWindow { rate, utc_ahead: UtcAhead::default() }
    }

    /// Aligns the windows to UTC, for a clock that UTC is ahead of by `utc_ahead`.
    #[must_use]
    pub fn on_clock(mut self, utc_ahead: UtcAhead) -> SlidingWindow {
        self.utc_ahead = utc_ahead;
        self
    }

    fn period(&self) -> u64 {
        self.rate.period().as_micros()
    }

    /// Returns the counters as of `now`, or as of the last allowed call if that is later.
    #[inline]
    fn counters(&self, cell: &Cell, now: Time) -> Counters {
        let (at, period) = (now.as_micros().max(cell.at), self.period());
        let elapsed = at % period;
        let began = at - elapsed;
        let (prev, cur) = if cell.at >= began {
            (cell.a, cell.b)
        } else if cell.at >= began.saturating_sub(period) {
            (cell.b, 0)
        } else {
            (0, 0)
        };
        Counters { prev, cur, began, elapsed }
    }

    /// Returns the part of `prev` that counts while `left` of the current window is to come,
    /// rounded up.
    #[inline]
    fn weighted(&self, prev: u32, left: u64) -> u64 {
        if prev == 0 {
            return 0;
        }
        let (prev, period) = (u64::from(prev), self.period());
        // 64 bits are enough below 2^32 µs (71 minutes); longer periods use 128.
        if left < 1 << 32 {
            return (prev * left).div_ceil(period);
        }
        let weighted = (u128::from(prev) * u128::from(left)).div_ceil(u128::from(period));
        u64::try_from(weighted).unwrap_or(u64::MAX)
    }

    /// Returns how long after the end of its window a count has faded to `room`, rounded up.
    fn faded_to(&self, room: u64, count: u32) -> u64 {
        // By then, room * period / count of the following window is left. Rounding that down rounds
        // the result up.
        let (period, count) = (self.period(), u64::from(count.max(1)));
        let left = match room.checked_mul(period) {
            Some(product) => product / count,
            None => {
                u64::try_from(u128::from(room) * u128::from(period) / u128::from(count)).unwrap_or(u64::MAX)
            }
        };
        period.saturating_sub(left)
    }
}

impl Algorithm for SlidingWindow {
    type State = Cell;

    #[inline]
    fn limit(&self) -> u32 {
        self.rate.count()
    }

    #[inline]
    fn remaining(&self, state: &Cell, now: Time) -> u32 {
        u32::try_from(self.used(state, now)).map_or(0, |used| self.rate.count().saturating_sub(used))
    }

    #[inline]
    fn used(&self, state: &Cell, now: Time) -> u64 {
        let now = self.utc_ahead.to_utc(now);
        let Counters { prev, cur, elapsed, .. } = self.counters(state, now);
        self.weighted(prev, self.period() - elapsed) + u64::from(cur)
    }

    fn window(&self, state: &Cell, now: Time) -> Option<Window> {
        let ahead = self.utc_ahead.micros();
        let began = self.counters(state, now.shifted(ahead)).began;
        Some(Window::new(began, began + self.period()).shifted(ahead.saturating_neg()))
    }

    #[inline]
    fn reset_after(&self, state: &Cell, now: Time) -> Span {
        let now = self.utc_ahead.to_utc(now);
        let Counters { prev, cur, began, .. } = self.counters(state, now);
        let windows = match (prev, cur) {
            (0, 0) => return Span::ZERO,
            (_, 0) => 1,
            _ => 2,
        };
        Span::from_micros(began + windows * self.period() - now.as_micros())
    }

    #[inline]
    fn retry_after(&self, state: &Cell, now: Time, cost: u32) -> Span {
        let now = self.utc_ahead.to_utc(now);
        let Counters { prev, cur, began, .. } = self.counters(state, now);
        let room = u64::from(self.rate.count().saturating_sub(cost));
        // In this window only prev fades. If cur alone is too much, it has to fade in the next one.
        let at = match room.checked_sub(u64::from(cur)) {
            Some(room) => began + self.faded_to(room, prev),
            None => began + self.period() + self.faded_to(room, cur),
        };
        Span::from_micros(at.saturating_sub(now.as_micros()))
    }

    #[inline]
    fn charge(&self, state: &mut Cell, now: Time, cost: u32) -> Span {
        let now = self.utc_ahead.to_utc(now);
        let Counters { prev, cur, began, elapsed } = self.counters(state, now);
        // Only debt could exceed 32 bits, and a saturated count denies as the exact one would.
        *state = Cell { at: began + elapsed, a: prev, b: cur.saturating_add(cost) };
        // By the end of the next window the current count has faded to 0.
        Span::from_micros(began + 2 * self.period() - now.as_micros())
    }

    fn refund(&self, state: &mut Cell, now: Time, cost: u32) -> bool {
        let now = self.utc_ahead.to_utc(now);
        let used = self.counters(state, now).cur;
        if used > 0 {
            state.b = used.saturating_sub(cost);
        }
        used.min(cost) > 0
    }

    /// The stack is a window, identified by its beginning.
    fn record(&self, state: &Cell, cost: u32, _waited: bool) -> Charge {
        Charge::on_stack(cost, state.at - state.at % self.period(), u64::from(state.b))
    }

    fn roll_back(&self, state: &mut Cell, times: Times, charge: &Charge, most: u32) -> Option<Rollback> {
        let began = self.counters(state, self.utc_ahead.to_utc(times.now)).began;
        let still_counts = charge.stack + self.period() >= began;
        let used = self.counter_of(state, charge.stack).filter(|_| still_counts)?;
        let rollback = charge.roll_back(most, u64::from(*used))?;
        *used = used.saturating_sub(u32::try_from(rollback.size()).unwrap_or(u32::MAX));
        Some(rollback)
    }

    fn shift_down(&self, rollback: &Rollback, charge: &mut Charge) {
        charge.shift_down(rollback);
    }

    fn cap_height(&self, state: &Cell, charge: &mut Charge) {
        let mut state = *state;
        charge.cap_height(self.counter_of(&mut state, charge.stack).map_or(0, |used| u64::from(*used)));
    }

    fn next_window(&self, state: &Cell, now: Time) -> Time {
        let ahead = self.utc_ahead.micros();
        let end = self.counters(state, now.shifted(ahead)).began + self.period();
        Time::saturating_from_micros(end).shifted(ahead.saturating_neg())
    }

    fn is_idle(&self, state: &Cell, now: Time) -> bool {
        let now = self.utc_ahead.to_utc(now);
        let Counters { prev, cur, .. } = self.counters(state, now);
        prev == 0 && cur == 0
    }

    fn adopt(&self, old: &Self, state: &mut Cell, _times: Times) -> Adopted {
        if self.rate.period() != old.rate.period() {
            *state = Cell::UNSEEN;
            return Adopted::Fresh;
        }
        Adopted::Kept
    }
}

impl SlidingWindow {
    /// Returns the counter of the window that began at `began`, if the state still has it.
    fn counter_of<'a>(&self, state: &'a mut Cell, began: u64) -> Option<&'a mut u32> {
        let last = state.at - state.at % self.period();
        if began == last {
            Some(&mut state.b)
        } else if began + self.period() == last {
            Some(&mut state.a)
        } else {
            None
        }
    }
}
