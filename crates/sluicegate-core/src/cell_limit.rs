//! A limit whose state is a [`Cell`] and whose algorithm is known only at run time: any but the
//! log.

use crate::algorithm::{Algorithm, Charged, Debt, NotCharged, Verb, Waiting};
use crate::cell::Cell;
use crate::decision::Decision;
use crate::fixed_window::FixedWindow;
use crate::gcra::{Bucket as _, Gcra};
use crate::leaky_bucket::LeakyBucket;
use crate::min_interval::MinInterval;
use crate::pacer::Pacer;
use crate::rescaling::Adopted;
use crate::rollback::{Charge, Rollback, Times};
use crate::sliding_window::SlidingWindow;
use crate::smooth::Smooth;
use crate::time::{Span, Time};
use crate::token_bucket::TokenBucket;
use crate::usage::Window;

/// A limit of any algorithm but the log. Exhaustive for the same reason as
/// [`AnyLimit`](crate::AnyLimit).
#[derive(Clone, Debug)]
pub enum CellLimit {
    /// See [`crate::token_bucket`].
    TokenBucket(TokenBucket),
    /// See [`crate::leaky_bucket`].
    LeakyBucket(LeakyBucket),
    /// See [`crate::min_interval`].
    MinInterval(MinInterval),
    /// See [`crate::pacer`].
    Pacer(Pacer),
    /// See [`crate::fixed_window`].
    FixedWindow(FixedWindow),
    /// See [`crate::sliding_window`].
    SlidingWindow(SlidingWindow),
    /// See [`crate::smooth`].
    Smooth(Smooth),
}

impl CellLimit {
    #[inline]
    fn as_algorithm(&self) -> &dyn Algorithm<State = Cell> {
        match self {
            CellLimit::TokenBucket(limit) => limit,
            CellLimit::LeakyBucket(limit) => limit,
            CellLimit::MinInterval(limit) => limit,
            CellLimit::Pacer(limit) => limit,
            CellLimit::FixedWindow(limit) => limit,
            CellLimit::SlidingWindow(limit) => limit,
            CellLimit::Smooth(limit) => limit,
        }
    }
}

/// Checks on a copy of the cell, which can stay in registers: no other algorithm takes its address.
#[inline(always)]
#[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
fn check_copy(limit: &impl Algorithm<State = Cell>, state: &mut Cell, now: Time, cost: u64) -> Decision {
    let mut own = *state;
    let decision = limit.check(&mut own, now, cost);
    *state = own;
    decision
}

impl Algorithm for CellLimit {
    type State = Cell;

    /// Every decision of a list comes through here, so it is spelled out and inlined like
    /// [`Algorithm::check`].
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn check(&self, state: &mut Cell, now: Time, cost: u64) -> Decision {
        match self {
            CellLimit::TokenBucket(limit) => check_copy(limit, state, now, cost),
            CellLimit::LeakyBucket(limit) => check_copy(limit, state, now, cost),
            CellLimit::MinInterval(limit) => check_copy(limit, state, now, cost),
            CellLimit::Pacer(limit) => check_copy(limit, state, now, cost),
            CellLimit::FixedWindow(limit) => check_copy(limit, state, now, cost),
            CellLimit::SlidingWindow(limit) => check_copy(limit, state, now, cost),
            CellLimit::Smooth(limit) => check_copy(limit, state, now, cost),
        }
    }

    /// Nearly every decision of a server comes through here, so it is spelled out as well.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn try_charge(&self, state: &mut Cell, now: Time, cost: u64) -> Result<Charged, NotCharged> {
        match self {
            CellLimit::TokenBucket(limit) => limit.try_charge(state, now, cost),
            CellLimit::LeakyBucket(limit) => limit.try_charge(state, now, cost),
            CellLimit::MinInterval(limit) => limit.try_charge(state, now, cost),
            CellLimit::Pacer(limit) => limit.try_charge(state, now, cost),
            CellLimit::FixedWindow(limit) => limit.try_charge(state, now, cost),
            CellLimit::SlidingWindow(limit) => limit.try_charge(state, now, cost),
            CellLimit::Smooth(limit) => limit.try_charge(state, now, cost),
        }
    }

    fn limit(&self) -> u64 {
        self.as_algorithm().limit()
    }

    fn remaining(&self, state: &Cell, now: Time) -> u64 {
        self.as_algorithm().remaining(state, now)
    }

    fn used(&self, state: &Cell, now: Time) -> u64 {
        self.as_algorithm().used(state, now)
    }

    fn window(&self, state: &Cell, now: Time) -> Option<Window> {
        self.as_algorithm().window(state, now)
    }

    fn reset_after(&self, state: &Cell, now: Time) -> Span {
        self.as_algorithm().reset_after(state, now)
    }

    /// Spelled out: only `smooth` needs more than a comparison.
    #[inline]
    fn admits(&self, state: &Cell, now: Time, cost: u64, remaining: u64) -> bool {
        match self {
            CellLimit::Smooth(limit) => limit.admits(state, now, cost, remaining),
            _ => cost <= remaining,
        }
    }

    #[inline]
    fn never_admits(&self, cost: u64) -> bool {
        self.as_algorithm().never_admits(cost)
    }

    fn retry_after(&self, state: &Cell, now: Time, cost: u64) -> Span {
        self.as_algorithm().retry_after(state, now, cost)
    }

    fn delay(&self, state: &Cell, now: Time) -> Span {
        self.as_algorithm().delay(state, now)
    }

    fn waiting(&self) -> Waiting {
        self.as_algorithm().waiting()
    }

    fn supports(&self, verb: Verb) -> bool {
        self.as_algorithm().supports(verb)
    }

    fn charge(&self, state: &mut Cell, now: Time, cost: u64) -> Span {
        self.as_algorithm().charge(state, now, cost)
    }

    fn record_denied(&self, state: &mut Cell, now: Time, cost: u64) -> bool {
        self.as_algorithm().record_denied(state, now, cost)
    }

    fn refund(&self, state: &mut Cell, now: Time, cost: u64) -> bool {
        self.as_algorithm().refund(state, now, cost)
    }

    fn charge_and_record(&self, state: &mut Cell, now: Time, cost: u64) -> Charge {
        self.as_algorithm().charge_and_record(state, now, cost)
    }

    fn record(&self, state: &Cell, cost: u64, waited: bool) -> Charge {
        self.as_algorithm().record(state, cost, waited)
    }

    fn roll_back(&self, state: &mut Cell, times: Times, charge: &Charge, most: u64) -> Option<Rollback> {
        self.as_algorithm().roll_back(state, times, charge, most)
    }

    fn shift_down(&self, rollback: &Rollback, charge: &mut Charge) {
        self.as_algorithm().shift_down(rollback, charge);
    }

    fn cap_height(&self, state: &Cell, charge: &mut Charge) {
        self.as_algorithm().cap_height(state, charge);
    }

    fn next_window(&self, state: &Cell, now: Time) -> Time {
        self.as_algorithm().next_window(state, now)
    }

    fn is_idle(&self, state: &Cell, now: Time) -> bool {
        self.as_algorithm().is_idle(state, now)
    }

    fn debt(&self, state: &Cell, now: Time) -> Option<Debt> {
        self.as_algorithm().debt(state, now)
    }

    /// Discards the state if the algorithm has changed.
    fn adopt(&self, old: &Self, state: &mut Cell, times: Times) -> Adopted {
        match (self, old) {
            (CellLimit::TokenBucket(new), CellLimit::TokenBucket(old)) => new.adopt(old, state, times),
            (CellLimit::LeakyBucket(new), CellLimit::LeakyBucket(old)) => new.adopt(old, state, times),
            (CellLimit::MinInterval(new), CellLimit::MinInterval(old)) => new.adopt(old, state, times),
            (CellLimit::Pacer(new), CellLimit::Pacer(old)) => new.adopt(old, state, times),
            (CellLimit::FixedWindow(new), CellLimit::FixedWindow(old)) => new.adopt(old, state, times),
            (CellLimit::SlidingWindow(new), CellLimit::SlidingWindow(old)) => new.adopt(old, state, times),
            (CellLimit::Smooth(new), CellLimit::Smooth(old)) => new.adopt(old, state, times),
            _ => discard(state),
        }
    }
}

impl CellLimit {
    /// Converts a state written by `old`, keeping the time until the key is fully recovered. For
    /// buckets; other algorithms discard the state.
    pub fn adopt_recovery_time(&self, old: &CellLimit, state: &mut Cell) -> Adopted {
        match (self.bucket(), old.bucket()) {
            (Some(new), Some(old)) => new.adopt_recovery_time(old, state),
            _ => discard(state),
        }
    }

    fn bucket(&self) -> Option<&Gcra> {
        match self {
            CellLimit::TokenBucket(limit) => Some(limit.gcra()),
            CellLimit::LeakyBucket(limit) => Some(limit.gcra()),
            CellLimit::MinInterval(limit) => Some(limit.gcra()),
            CellLimit::Pacer(limit) => Some(limit.gcra()),
            CellLimit::FixedWindow(_) | CellLimit::SlidingWindow(_) | CellLimit::Smooth(_) => None,
        }
    }
}

/// Discards a state that the limit cannot adopt.
pub(crate) fn discard<S: Default>(state: &mut S) -> Adopted {
    *state = S::default();
    Adopted::Fresh
}
