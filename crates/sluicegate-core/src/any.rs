//! Any limit, when which one is known only at run time: from a line of text, a configuration, a request.

use crate::algorithm::{Algorithm, Charge, Cut, Times, Verb, Waiting};
use crate::cell::Cell;
use crate::decision::Decision;
use crate::fixed_window::FixedWindow;
use crate::leaky_bucket::LeakyBucket;
use crate::min_interval::MinInterval;
use crate::pacer::Pacer;
use crate::sliding_log::{Log, SlidingLog};
use crate::sliding_window::SlidingWindow;
use crate::time::{Span, Time};
use crate::token_bucket::TokenBucket;
use alloc::boxed::Box;

/// A limit of any algorithm.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyLimit {
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
    /// See [`crate::sliding_log`].
    SlidingLog(SlidingLog),
    /// See [`crate::sliding_window`].
    SlidingWindow(SlidingWindow),
}

/// One key's state under any limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnyState {
    /// 16 bytes: every algorithm but the log.
    Cell(Cell),
    /// The log's entries, of a key that has called.
    Log(Box<Log>),
}

impl Default for AnyState {
    /// A key that has never called is the same under every limit.
    fn default() -> Self {
        AnyState::Cell(Cell::UNSEEN)
    }
}

impl AnyState {
    /// The cell; for a state that another kind of limit left, a fresh one.
    fn cell(&self) -> Cell {
        match self {
            AnyState::Cell(cell) => *cell,
            AnyState::Log(_) => Cell::UNSEEN,
        }
    }

    fn cell_mut(&mut self) -> &mut Cell {
        if let AnyState::Log(_) = self {
            *self = AnyState::default();
        }
        match self {
            AnyState::Cell(cell) => cell,
            AnyState::Log(_) => unreachable!("replaced just above"),
        }
    }

    fn log_mut(&mut self) -> &mut Log {
        if let AnyState::Cell(_) = self {
            *self = AnyState::Log(Box::default());
        }
        match self {
            AnyState::Log(log) => log,
            AnyState::Cell(_) => unreachable!("replaced just above"),
        }
    }
}

/// The log of a key that has never called.
static EMPTY: Log = Log::EMPTY;

/// Asks the algorithm inside, with the state as that algorithm keeps it.
macro_rules! ask {
    ($limit:expr, $state:expr, |$inner:ident, $of:ident| $body:expr) => {
        match $limit {
            AnyLimit::SlidingLog($inner) => {
                let $of = if let AnyState::Log(log) = $state { &**log } else { &EMPTY };
                $body
            }
            AnyLimit::TokenBucket($inner) => {
                let $of = &$state.cell();
                $body
            }
            AnyLimit::LeakyBucket($inner) => {
                let $of = &$state.cell();
                $body
            }
            AnyLimit::MinInterval($inner) => {
                let $of = &$state.cell();
                $body
            }
            AnyLimit::Pacer($inner) => {
                let $of = &$state.cell();
                $body
            }
            AnyLimit::FixedWindow($inner) => {
                let $of = &$state.cell();
                $body
            }
            AnyLimit::SlidingWindow($inner) => {
                let $of = &$state.cell();
                $body
            }
        }
    };
}

/// The same with a state that may change.
macro_rules! tell {
    ($limit:expr, $state:expr, |$inner:ident, $of:ident| $body:expr) => {
        match $limit {
            AnyLimit::SlidingLog($inner) => {
                let $of = $state.log_mut();
                $body
            }
            AnyLimit::TokenBucket($inner) => {
                let $of = $state.cell_mut();
                $body
            }
            AnyLimit::LeakyBucket($inner) => {
                let $of = $state.cell_mut();
                $body
            }
            AnyLimit::MinInterval($inner) => {
                let $of = $state.cell_mut();
                $body
            }
            AnyLimit::Pacer($inner) => {
                let $of = $state.cell_mut();
                $body
            }
            AnyLimit::FixedWindow($inner) => {
                let $of = $state.cell_mut();
                $body
            }
            AnyLimit::SlidingWindow($inner) => {
                let $of = $state.cell_mut();
                $body
            }
        }
    };
}

/// The same without a state.
macro_rules! of {
    ($limit:expr, |$inner:ident| $body:expr) => {
        match $limit {
            AnyLimit::TokenBucket($inner) => $body,
            AnyLimit::LeakyBucket($inner) => $body,
            AnyLimit::MinInterval($inner) => $body,
            AnyLimit::Pacer($inner) => $body,
            AnyLimit::FixedWindow($inner) => $body,
            AnyLimit::SlidingLog($inner) => $body,
            AnyLimit::SlidingWindow($inner) => $body,
        }
    };
}

impl Algorithm for AnyLimit {
    type State = AnyState;

    /// Asks once which algorithm it is, instead of for each part of the answer.
    #[inline]
    fn check(&self, state: &mut AnyState, now: Time, cost: u32) -> Decision {
        tell!(self, state, |limit, state| limit.check(state, now, cost))
    }

    fn limit(&self) -> u32 {
        of!(self, |limit| limit.limit())
    }

    fn remaining(&self, state: &AnyState, now: Time) -> u32 {
        ask!(self, state, |limit, state| limit.remaining(state, now))
    }

    fn reset_after(&self, state: &AnyState, now: Time) -> Span {
        ask!(self, state, |limit, state| limit.reset_after(state, now))
    }

    fn retry_after(&self, state: &AnyState, now: Time, cost: u32) -> Span {
        ask!(self, state, |limit, state| limit.retry_after(state, now, cost))
    }

    fn delay(&self, state: &AnyState, now: Time) -> Span {
        ask!(self, state, |limit, state| limit.delay(state, now))
    }

    fn waiting(&self) -> Waiting {
        of!(self, |limit| limit.waiting())
    }

    fn offers(&self, verb: Verb) -> bool {
        of!(self, |limit| limit.offers(verb))
    }

    fn charge(&self, state: &mut AnyState, now: Time, cost: u32) -> Span {
        tell!(self, state, |limit, state| limit.charge(state, now, cost))
    }

    fn enter_denied(&self, state: &mut AnyState, now: Time, cost: u32) -> bool {
        // Only the log enters denied calls; asking the others would make a state for nothing.
        let AnyLimit::SlidingLog(log) = self else { return false };
        log.enter_denied(state.log_mut(), now, cost)
    }

    fn refund(&self, state: &mut AnyState, now: Time, cost: u32) -> bool {
        tell!(self, state, |limit, state| limit.refund(state, now, cost))
    }

    fn record(&self, state: &AnyState, cost: u32, waited: bool) -> Charge {
        ask!(self, state, |limit, state| limit.record(state, cost, waited))
    }

    fn give_back(&self, state: &mut AnyState, times: Times, charge: &Charge, most: u32) -> Option<Cut> {
        tell!(self, state, |limit, state| limit.give_back(state, times, charge, most))
    }

    fn close_gap(&self, cut: &Cut, charge: &mut Charge) {
        of!(self, |limit| limit.close_gap(cut, charge));
    }

    fn lower_to(&self, state: &AnyState, charge: &mut Charge) {
        ask!(self, state, |limit, state| limit.lower_to(state, charge));
    }

    fn next_window(&self, state: &AnyState, now: Time) -> Time {
        ask!(self, state, |limit, state| limit.next_window(state, now))
    }

    fn is_idle(&self, state: &AnyState, now: Time) -> bool {
        ask!(self, state, |limit, state| limit.is_idle(state, now))
    }

    /// A limit whose algorithm changed starts afresh.
    fn adopt(&self, old: &Self, state: &mut AnyState, now: Time) {
        match (self, old) {
            (AnyLimit::TokenBucket(new), AnyLimit::TokenBucket(old)) => new.adopt(old, state.cell_mut(), now),
            (AnyLimit::LeakyBucket(new), AnyLimit::LeakyBucket(old)) => new.adopt(old, state.cell_mut(), now),
            (AnyLimit::MinInterval(new), AnyLimit::MinInterval(old)) => new.adopt(old, state.cell_mut(), now),
            (AnyLimit::Pacer(new), AnyLimit::Pacer(old)) => new.adopt(old, state.cell_mut(), now),
            (AnyLimit::FixedWindow(new), AnyLimit::FixedWindow(old)) => new.adopt(old, state.cell_mut(), now),
            (AnyLimit::SlidingLog(new), AnyLimit::SlidingLog(old)) => new.adopt(old, state.log_mut(), now),
            (AnyLimit::SlidingWindow(new), AnyLimit::SlidingWindow(old)) => {
                new.adopt(old, state.cell_mut(), now);
            }
            _ => *state = AnyState::default(),
        }
    }
}
