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
//! State      when a call was last allowed (in UTC), and prev and cur as of that window: in a `Cell`
//!            as at, a and b, or in a `WideCell` if the count exceeds 2^32 - 1
//! Formula    used = ceil(prev * (period - e) / period) + cur; allow if used + cost <= count
//!            (rounding the exact estimate up changes no decision, since count and cost are whole)
//! Promise    the estimate never exceeds count. The true number in any period stays below twice the
//!            count. It comes near that only if one window's calls bunch at its end and the next
//!            window's come as soon as they may; evenly spread calls are held to the count itself.
//! Debt       a counter stops at `DEBT_MAX`, which is 2 * 10^12, and in a `Cell` at 2^32 - 1; only
//!            settling gets there. Below that everything is exact.
//! Rounding   none in the decision; waits are rounded up, remaining is rounded down.
//! Clock      a call earlier than the last allowed one is decided at that one's time; its waits
//!            count from its own.
//! Cost       16 bytes per key, or 24; two divisions per decision.
//!
//! Example    10/10s: ten calls at t = 0. At 15 s half of them count, so five calls are allowed.
//! ```

use crate::algorithm::Algorithm;
use crate::bounds::{DEBT_MAX, OutOfBounds, Rate};
use crate::cell::{Cell, WideCell};
use crate::rescaling::Adopted;
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{Span, Time};
use crate::usage::Window;
use crate::utc_ahead::UtcAhead;
use core::marker::PhantomData;

/// The sliding window. Pick it when the edge burst of a fixed window hurts and a log would be too
/// large.
///
/// `S` is the state of a key: a [`WideCell`] if the count does not fit into a [`Cell`].
#[derive(Clone, Debug)]
pub struct SlidingWindow<S = Cell> {
    rate: Rate,
    utc_ahead: UtcAhead,
    state: PhantomData<S>,
}

/// A state that holds two counters.
pub trait Counts: Copy + Default + PartialEq {
    /// The most that a counter holds, debt included.
    const MOST: u64;

    /// Creates a state from when a call was last allowed, and the counters of the previous and the
    /// current window. What exceeds [`Counts::MOST`] is not kept.
    fn new(at: u64, prev: u64, cur: u64) -> Self;

    /// Returns the same three numbers.
    fn numbers(&self) -> (u64, u64, u64);
}

impl Counts for Cell {
    const MOST: u64 = 0xffff_ffff;

    #[inline]
    fn new(at: u64, prev: u64, cur: u64) -> Cell {
        let kept = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Cell { at, a: kept(prev), b: kept(cur) }
    }

    #[inline]
    fn numbers(&self) -> (u64, u64, u64) {
        (self.at, self.a.into(), self.b.into())
    }
}

impl Counts for WideCell {
    const MOST: u64 = DEBT_MAX;

    #[inline]
    fn new(at: u64, prev: u64, cur: u64) -> WideCell {
        WideCell { at, prev: prev.min(DEBT_MAX), cur: cur.min(DEBT_MAX) }
    }

    #[inline]
    fn numbers(&self) -> (u64, u64, u64) {
        (self.at, self.prev, self.cur)
    }
}

/// The two counters as they are at one moment.
#[derive(Clone, Copy)]
struct Counters {
    prev: u64,
    cur: u64,
    /// The beginning of the window that `cur` counts.
    began: u64,
    /// The time since then.
    elapsed: u64,
}

impl SlidingWindow {
    /// Creates a limit of about `count` in any `period`, with 16 bytes of state.
    ///
    /// # Errors
    /// If the count is above 2^32 - 1; see [`SlidingWindow::wide`].
    pub fn new(rate: Rate) -> Result<SlidingWindow, OutOfBounds> {
        if rate.count() > Cell::MOST {
            let advice = "use a wide sliding window for a count this large";
            return Err(OutOfBounds::above("count", rate.count(), Cell::MOST, advice));
        }
        Ok(SlidingWindow { rate, utc_ahead: UtcAhead::default(), state: PhantomData })
    }
}

impl SlidingWindow<WideCell> {
    /// Creates a limit of about `count` in any `period`, with 24 bytes of state, which have room
    /// for any count.
    pub fn wide(rate: Rate) -> SlidingWindow<WideCell> {
        SlidingWindow { rate, utc_ahead: UtcAhead::default(), state: PhantomData }
    }
}

impl<S: Counts> SlidingWindow<S> {
    /// Converts the state of a limit that may have another count, and another kind of state.
    pub(crate) fn adopt_from<T: Counts>(&self, old: &SlidingWindow<T>, state: &T) -> (S, Adopted) {
        if self.rate.period() != old.rate.period() {
            return (S::default(), Adopted::Fresh);
        }
        let (at, prev, cur) = state.numbers();
        (S::new(at, prev, cur), Adopted::Kept)
    }

    /// Aligns the windows to UTC, for a clock that UTC is ahead of by `utc_ahead`.
    #[must_use]
    pub fn on_clock(mut self, utc_ahead: UtcAhead) -> SlidingWindow<S> {
        self.utc_ahead = utc_ahead;
        self
    }

    fn period(&self) -> u64 {
        self.rate.period().as_micros()
    }

    /// Returns the counters as of `now`, or as of the last allowed call if that is later.
    #[inline]
    fn counters(&self, state: &S, now: Time) -> Counters {
        let (last, prev, cur) = state.numbers();
        let (at, period) = (now.as_micros().max(last), self.period());
        let elapsed = at % period;
        let began = at - elapsed;
        let (prev, cur) = if last >= began {
            (prev, cur)
        } else if last >= began.saturating_sub(period) {
            (cur, 0)
        } else {
            (0, 0)
        };
        Counters { prev, cur, began, elapsed }
    }

    /// Returns the part of `prev` that counts while `left` of the current window is to come,
    /// rounded up.
    #[inline]
    fn weighted(&self, prev: u64, left: u64) -> u64 {
        if prev == 0 {
            return 0;
        }
        let period = self.period();
        // 64 bits are enough below 2^32 µs (71 minutes) and a count of 2^32; beyond that 128 are
        // used: a count is below 2^41 and a period below 2^49.
        if (left | prev) < 1 << 32 {
            return (prev * left).div_ceil(period);
        }
        let weighted = (u128::from(prev) * u128::from(left)).div_ceil(u128::from(period));
        u64::try_from(weighted).unwrap_or(u64::MAX)
    }

    /// Returns how long after the end of its window a count has faded to `room`, rounded up.
    fn faded_to(&self, room: u64, count: u64) -> u64 {
        // By then, room * period / count of the following window is left. Rounding that down rounds
        // the result up.
        let (period, count) = (self.period(), count.max(1));
        let left = match room.checked_mul(period) {
            Some(product) => product / count,
            None => {
                u64::try_from(u128::from(room) * u128::from(period) / u128::from(count)).unwrap_or(u64::MAX)
            }
        };
        period.saturating_sub(left)
    }
}

impl<S: Counts> Algorithm for SlidingWindow<S> {
    type State = S;

    #[inline]
    fn limit(&self) -> u64 {
        self.rate.count()
    }

    #[inline]
    fn remaining(&self, state: &S, now: Time) -> u64 {
        self.rate.count().saturating_sub(self.used(state, now))
    }

    #[inline]
    fn used(&self, state: &S, now: Time) -> u64 {
        let now = self.utc_ahead.to_utc(now);
        let Counters { prev, cur, elapsed, .. } = self.counters(state, now);
        self.weighted(prev, self.period() - elapsed) + cur
    }

    fn window(&self, state: &S, now: Time) -> Option<Window> {
        let ahead = self.utc_ahead.micros();
        let began = self.counters(state, now.shifted(ahead)).began;
        Some(Window::new(began, began + self.period()).shifted(ahead.saturating_neg()))
    }

    #[inline]
    fn reset_after(&self, state: &S, now: Time) -> Span {
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
    fn retry_after(&self, state: &S, now: Time, cost: u64) -> Span {
        let now = self.utc_ahead.to_utc(now);
        let Counters { prev, cur, began, .. } = self.counters(state, now);
        let room = self.rate.count().saturating_sub(cost);
        // In this window only prev fades. If cur alone is too much, it has to fade in the next one.
        let at = match room.checked_sub(cur) {
            Some(room) => began + self.faded_to(room, prev),
            None => began + self.period() + self.faded_to(room, cur),
        };
        Span::from_micros(at.saturating_sub(now.as_micros()))
    }

    #[inline]
    fn charge(&self, state: &mut S, now: Time, cost: u64) -> Span {
        let now = self.utc_ahead.to_utc(now);
        let Counters { prev, cur, began, elapsed } = self.counters(state, now);
        *state = S::new(began + elapsed, prev, cur.saturating_add(cost));
        // By the end of the next window the current count has faded to 0.
        Span::from_micros(began + 2 * self.period() - now.as_micros())
    }

    fn refund(&self, state: &mut S, now: Time, cost: u64) -> bool {
        let now = self.utc_ahead.to_utc(now);
        let used = self.counters(state, now).cur;
        if used > 0 {
            let (at, prev, _) = state.numbers();
            *state = S::new(at, prev, used.saturating_sub(cost));
        }
        used.min(cost) > 0
    }

    /// The stack is a window, identified by its beginning.
    fn record(&self, state: &S, cost: u64, _waited: bool) -> Charge {
        let (at, _, cur) = state.numbers();
        Charge::on_stack(cost, at - at % self.period(), cur)
    }

    fn roll_back(&self, state: &mut S, times: Times, charge: &Charge, most: u64) -> Option<Rollback> {
        let began = self.counters(state, self.utc_ahead.to_utc(times.now)).began;
        let still_counts = charge.stack + self.period() >= began;
        let (counter, used) = self.counter_of(state, charge.stack).filter(|_| still_counts)?;
        let rollback = charge.roll_back(most, used)?;
        let left = used.saturating_sub(rollback.size());
        let (at, prev, cur) = state.numbers();
        *state = match counter {
            Counter::Prev => S::new(at, left, cur),
            Counter::Cur => S::new(at, prev, left),
        };
        Some(rollback)
    }

    fn shift_down(&self, rollback: &Rollback, charge: &mut Charge) {
        charge.shift_down(rollback);
    }

    fn cap_height(&self, state: &S, charge: &mut Charge) {
        charge.cap_height(self.counter_of(state, charge.stack).map_or(0, |(_, used)| used));
    }

    fn next_window(&self, state: &S, now: Time) -> Time {
        let ahead = self.utc_ahead.micros();
        let end = self.counters(state, now.shifted(ahead)).began + self.period();
        Time::saturating_from_micros(end).shifted(ahead.saturating_neg())
    }

    fn is_idle(&self, state: &S, now: Time) -> bool {
        let now = self.utc_ahead.to_utc(now);
        let Counters { prev, cur, .. } = self.counters(state, now);
        prev == 0 && cur == 0
    }

    fn adopt(&self, old: &Self, state: &mut S, _times: Times) -> Adopted {
        let (converted, adopted) = self.adopt_from(old, state);
        *state = converted;
        adopted
    }
}

/// One of the two counters.
#[derive(Clone, Copy)]
enum Counter {
    Prev,
    Cur,
}

impl<S: Counts> SlidingWindow<S> {
    /// Returns the counter of the window that began at `began` and what it holds, if the state
    /// still has it.
    fn counter_of(&self, state: &S, began: u64) -> Option<(Counter, u64)> {
        let (at, prev, cur) = state.numbers();
        let last = at - at % self.period();
        if began == last {
            Some((Counter::Cur, cur))
        } else if began + self.period() == last {
            Some((Counter::Prev, prev))
        } else {
            None
        }
    }
}
