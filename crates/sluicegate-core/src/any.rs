//! Any limit, when which one is known only at run time: from a line of text, a configuration, a request.

use crate::algorithm::{Algorithm, Verb, Waiting};
use crate::cell::Cell;
use crate::decision::Decision;
use crate::fixed_window::FixedWindow;
use crate::leaky_bucket::LeakyBucket;
use crate::min_interval::MinInterval;
use crate::pacer::Pacer;
use crate::pile::{Charge, Cut, Times};
use crate::sliding_log::{Log, SlidingLog};
use crate::sliding_window::SlidingWindow;
use crate::time::{Span, Time};
use crate::token_bucket::TokenBucket;
use alloc::boxed::Box;

/// A limit of any algorithm.
#[derive(Clone, Debug)]
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
    /// The cell; a fresh one in place of a log, which no limit with a cell has left.
    fn cell(&self) -> &Cell {
        match self {
            AnyState::Cell(cell) => cell,
            AnyState::Log(_) => &Cell::UNSEEN,
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

    /// The log; an empty one for a key that has never called.
    fn log(&self) -> &Log {
        static EMPTY: Log = Log::EMPTY;
        match self {
            AnyState::Log(log) => log,
            AnyState::Cell(_) => &EMPTY,
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

/// The limit inside, by the state it keeps.
enum Inside<'a> {
    Cell(&'a dyn Algorithm<State = Cell>),
    Log(&'a SlidingLog),
}

impl AnyLimit {
    #[inline]
    fn inside(&self) -> Inside<'_> {
        match self {
            AnyLimit::TokenBucket(limit) => Inside::Cell(limit),
            AnyLimit::LeakyBucket(limit) => Inside::Cell(limit),
            AnyLimit::MinInterval(limit) => Inside::Cell(limit),
            AnyLimit::Pacer(limit) => Inside::Cell(limit),
            AnyLimit::FixedWindow(limit) => Inside::Cell(limit),
            AnyLimit::SlidingWindow(limit) => Inside::Cell(limit),
            AnyLimit::SlidingLog(limit) => Inside::Log(limit),
        }
    }
}

impl Algorithm for AnyLimit {
    type State = AnyState;

    /// The way of nearly every decision, so it is spelled out: the compiler can then put each algorithm in place.
    #[inline]
    fn check(&self, state: &mut AnyState, now: Time, cost: u32) -> Decision {
        match self {
            AnyLimit::TokenBucket(limit) => limit.check(state.cell_mut(), now, cost),
            AnyLimit::LeakyBucket(limit) => limit.check(state.cell_mut(), now, cost),
            AnyLimit::MinInterval(limit) => limit.check(state.cell_mut(), now, cost),
            AnyLimit::Pacer(limit) => limit.check(state.cell_mut(), now, cost),
            AnyLimit::FixedWindow(limit) => limit.check(state.cell_mut(), now, cost),
            AnyLimit::SlidingWindow(limit) => limit.check(state.cell_mut(), now, cost),
            AnyLimit::SlidingLog(limit) => limit.check(state.log_mut(), now, cost),
        }
    }

    fn limit(&self) -> u32 {
        match self.inside() {
            Inside::Cell(limit) => limit.limit(),
            Inside::Log(limit) => limit.limit(),
        }
    }

    fn remaining(&self, state: &AnyState, now: Time) -> u32 {
        match self.inside() {
            Inside::Cell(limit) => limit.remaining(state.cell(), now),
            Inside::Log(limit) => limit.remaining(state.log(), now),
        }
    }

    fn reset_after(&self, state: &AnyState, now: Time) -> Span {
        match self.inside() {
            Inside::Cell(limit) => limit.reset_after(state.cell(), now),
            Inside::Log(limit) => limit.reset_after(state.log(), now),
        }
    }

    fn retry_after(&self, state: &AnyState, now: Time, cost: u32) -> Span {
        match self.inside() {
            Inside::Cell(limit) => limit.retry_after(state.cell(), now, cost),
            Inside::Log(limit) => limit.retry_after(state.log(), now, cost),
        }
    }

    fn delay(&self, state: &AnyState, now: Time) -> Span {
        match self.inside() {
            Inside::Cell(limit) => limit.delay(state.cell(), now),
            Inside::Log(limit) => limit.delay(state.log(), now),
        }
    }

    fn waiting(&self) -> Waiting {
        match self.inside() {
            Inside::Cell(limit) => limit.waiting(),
            Inside::Log(limit) => limit.waiting(),
        }
    }

    fn offers(&self, verb: Verb) -> bool {
        match self.inside() {
            Inside::Cell(limit) => limit.offers(verb),
            Inside::Log(limit) => limit.offers(verb),
        }
    }

    fn charge(&self, state: &mut AnyState, now: Time, cost: u32) -> Span {
        match self.inside() {
            Inside::Cell(limit) => limit.charge(state.cell_mut(), now, cost),
            Inside::Log(limit) => limit.charge(state.log_mut(), now, cost),
        }
    }

    fn enter_denied(&self, state: &mut AnyState, now: Time, cost: u32) -> bool {
        match self.inside() {
            Inside::Cell(limit) => limit.enter_denied(state.cell_mut(), now, cost),
            Inside::Log(limit) => limit.enter_denied(state.log_mut(), now, cost),
        }
    }

    fn refund(&self, state: &mut AnyState, now: Time, cost: u32) -> bool {
        match self.inside() {
            Inside::Cell(limit) => limit.refund(state.cell_mut(), now, cost),
            Inside::Log(limit) => limit.refund(state.log_mut(), now, cost),
        }
    }

    fn record(&self, state: &AnyState, cost: u32, waited: bool) -> Charge {
        match self.inside() {
            Inside::Cell(limit) => limit.record(state.cell(), cost, waited),
            Inside::Log(limit) => limit.record(state.log(), cost, waited),
        }
    }

    fn give_back(&self, state: &mut AnyState, times: Times, charge: &Charge, most: u32) -> Option<Cut> {
        match self.inside() {
            Inside::Cell(limit) => limit.give_back(state.cell_mut(), times, charge, most),
            Inside::Log(limit) => limit.give_back(state.log_mut(), times, charge, most),
        }
    }

    fn close_gap(&self, cut: &Cut, charge: &mut Charge) {
        match self.inside() {
            Inside::Cell(limit) => limit.close_gap(cut, charge),
            Inside::Log(limit) => limit.close_gap(cut, charge),
        }
    }

    fn lower_to(&self, state: &AnyState, charge: &mut Charge) {
        match self.inside() {
            Inside::Cell(limit) => limit.lower_to(state.cell(), charge),
            Inside::Log(limit) => limit.lower_to(state.log(), charge),
        }
    }

    fn next_window(&self, state: &AnyState, now: Time) -> Time {
        match self.inside() {
            Inside::Cell(limit) => limit.next_window(state.cell(), now),
            Inside::Log(limit) => limit.next_window(state.log(), now),
        }
    }

    fn is_idle(&self, state: &AnyState, now: Time) -> bool {
        match self.inside() {
            Inside::Cell(limit) => limit.is_idle(state.cell(), now),
            Inside::Log(limit) => limit.is_idle(state.log(), now),
        }
    }

    /// A limit whose algorithm changed starts afresh.
    fn adopt(&self, old: &Self, state: &mut AnyState, times: Times) {
        match (self, old) {
            (AnyLimit::TokenBucket(new), AnyLimit::TokenBucket(old)) => {
                new.adopt(old, state.cell_mut(), times);
            }
            (AnyLimit::LeakyBucket(new), AnyLimit::LeakyBucket(old)) => {
                new.adopt(old, state.cell_mut(), times);
            }
            (AnyLimit::MinInterval(new), AnyLimit::MinInterval(old)) => {
                new.adopt(old, state.cell_mut(), times);
            }
            (AnyLimit::Pacer(new), AnyLimit::Pacer(old)) => new.adopt(old, state.cell_mut(), times),
            (AnyLimit::FixedWindow(new), AnyLimit::FixedWindow(old)) => {
                new.adopt(old, state.cell_mut(), times);
            }
            (AnyLimit::SlidingLog(new), AnyLimit::SlidingLog(old)) => new.adopt(old, state.log_mut(), times),
            (AnyLimit::SlidingWindow(new), AnyLimit::SlidingWindow(old)) => {
                new.adopt(old, state.cell_mut(), times);
            }
            _ => *state = AnyState::default(),
        }
    }
}
