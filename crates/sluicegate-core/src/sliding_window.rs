//! Sliding window: two counters, the older one fading out. Constant memory, close to the log.
//!
//! In plain words: count each aligned window, and pretend that the calls of the last one came evenly. As this
//! window goes on, less and less of the last one still lies within one period from now: its share fades from
//! all to nothing. The estimate is that share plus this window's count.
//!
//! ```text
//!      last window        this window
//! |      prev = 80     |   cur = 30            |       estimate = 80 * (P - e) / P + 30
//! |        [-----------+---e---> now]          |       at e = P/4: 60 + 30 = 90
//! ```
//!
//! ```text
//! Settings   count per period
//! State      in a Cell: at = when a call was last allowed, a = prev and b = cur of that moment's window
//! Formula    used = ceil(prev * (period - e) / period) + cur; allow if used + cost <= count
//!            (the estimate is exact; rounding it up changes no decision, as count and cost are whole)
//! Promise    the estimate never exceeds count. The true number in any period stays below twice the count, and comes
//!            near it only if one window's calls bunch at its end and the next window's come as soon as they may;
//!            evenly spread calls see the count itself.
//! Rounding   none in the decision; waits are rounded up, remaining is rounded down.
//! Clock      a call before the last allowed one is decided as if it came then; waits count from its own time.
//! Cost       16 bytes a key; two divisions a decision.
//!
//! Example    10/10s: ten calls at t = 0. At 15 s half of them count, so five calls pass.
//! ```

use crate::algorithm::Algorithm;
use crate::bounds::Rate;
use crate::cell::Cell;
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{Span, Time};

/// The sliding window. Pick it when the edge burst of a fixed window hurts and a log would be too large.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlidingWindow {
    rate: Rate,
}

/// The two counters as they are at one moment.
#[derive(Clone, Copy)]
struct Counters {
    prev: u32,
    cur: u32,
    /// When the window that `cur` counts began.
    began: u64,
    /// How long it has been going on.
    elapsed: u64,
}

impl SlidingWindow {
    /// About `count` in any `period`.
    pub fn new(rate: Rate) -> SlidingWindow {
        SlidingWindow { rate }
    }

    fn period(&self) -> u64 {
        self.rate.period().as_micros()
    }

    /// The counters at `now`, or at the last allowed call if that was later.
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

    /// The part of `prev` that still counts when `left` of this window is to come, rounded up.
    #[inline]
    fn fading(&self, prev: u32, left: u64) -> u64 {
        if prev == 0 {
            return 0;
        }
        let (prev, period) = (u64::from(prev), self.period());
        // Within 64 bits for periods below 2^32 µs (71 minutes); the rest is taken in 128.
        if left < 1 << 32 {
            return (prev * left).div_ceil(period);
        }
        let fading = (u128::from(prev) * u128::from(left)).div_ceil(u128::from(period));
        u64::try_from(fading).unwrap_or(u64::MAX)
    }

    /// How long after the start of its second window a count of `fading` has come down to `room`, rounded up.
    fn faded_to(&self, room: u64, fading: u32) -> u64 {
        // room * period / fading of the window may be left; what is rounded down there is rounded up here.
        let (period, fading) = (self.period(), u64::from(fading.max(1)));
        let left = match room.checked_mul(period) {
            Some(product) => product / fading,
            None => {
                u64::try_from(u128::from(room) * u128::from(period) / u128::from(fading)).unwrap_or(u64::MAX)
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
        let Counters { prev, cur, elapsed, .. } = self.counters(state, now);
        let used = self.fading(prev, self.period() - elapsed) + u64::from(cur);
        u32::try_from(used).map_or(0, |used| self.rate.count().saturating_sub(used))
    }

    #[inline]
    fn reset_after(&self, state: &Cell, now: Time) -> Span {
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
        let Counters { prev, cur, began, .. } = self.counters(state, now);
        let room = u64::from(self.rate.count().saturating_sub(cost));
        // Within this window only prev fades; if cur alone is too much, it has to fade itself in the next one.
        let at = match room.checked_sub(u64::from(cur)) {
            Some(room) => began + self.faded_to(room, prev),
            None => began + self.period() + self.faded_to(room, cur),
        };
        Span::from_micros(at.saturating_sub(now.as_micros()))
    }

    #[inline]
    fn charge(&self, state: &mut Cell, now: Time, cost: u32) -> Span {
        let Counters { prev, cur, began, elapsed } = self.counters(state, now);
        // Only debt could go beyond 32 bits, and any count above the limit already denies.
        *state = Cell { at: began + elapsed, a: prev, b: cur.saturating_add(cost) };
        // What this window holds has faded by the end of the next.
        Span::from_micros(began + 2 * self.period() - now.as_micros())
    }

    fn refund(&self, state: &mut Cell, now: Time, cost: u32) -> bool {
        let used = self.counters(state, now).cur;
        if used > 0 {
            state.b = used.saturating_sub(cost);
        }
        used.min(cost) > 0
    }

    /// The pile is a window, named by when it began.
    fn record(&self, state: &Cell, cost: u32, _waited: bool) -> Charge {
        Charge::on_stack(cost, state.at - state.at % self.period(), u64::from(state.b))
    }

    fn roll_back(&self, state: &mut Cell, times: Times, charge: &Charge, most: u32) -> Option<Rollback> {
        let began = self.counters(state, times.now).began;
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
        Time::saturating_from_micros(self.counters(state, now).began + self.period())
    }

    fn is_idle(&self, state: &Cell, now: Time) -> bool {
        let Counters { prev, cur, .. } = self.counters(state, now);
        prev == 0 && cur == 0
    }

    fn adopt(&self, old: &Self, state: &mut Cell, _times: Times) {
        if self.rate.period() != old.rate.period() {
            *state = Cell::UNSEEN;
        }
    }
}

impl SlidingWindow {
    /// The counter of the window that began then, if the state still has it.
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
