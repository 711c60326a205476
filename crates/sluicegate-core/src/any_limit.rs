//! A limit whose algorithm is known only at run time: from text, a configuration file or a request.

use crate::algorithm::{Algorithm, Debt, Verb, Waiting};
use crate::cell::{Cell, WideCell};
use crate::cell_limit::{CellLimit, discard};
use crate::decision::Decision;
use crate::rescaling::Adopted;
use crate::rollback::{Charge, Rollback, Times};
use crate::sliding_log::{Log, SlidingLog};
use crate::sliding_window::SlidingWindow;
use crate::time::{Span, Time};
use crate::usage::Window;
use alloc::boxed::Box;

/// A limit of any algorithm, by the kind of its state. Exhaustive on purpose: sister crates, which
/// are released together with this one, must handle every kind, and a wildcard arm would hide a
/// missing one.
#[derive(Clone, Debug)]
pub enum AnyLimit {
    /// Every algorithm but the log, and no sliding window that is wide.
    Cell(CellLimit),
    /// A sliding window whose count does not fit into a cell.
    Wide(SlidingWindow<WideCell>),
    /// See [`crate::sliding_log`].
    Log(SlidingLog),
}

/// One key's state under any limit. Exhaustive for the same reason as [`AnyLimit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnyState {
    /// 16 bytes: every algorithm but those below.
    Cell(Cell),
    /// The counters of a wide sliding window. Boxed, so that the other states stay small.
    Wide(Box<WideCell>),
    /// The log of a key that has called.
    Log(Box<Log>),
}

impl Default for AnyState {
    /// An unseen key, which is the same under every limit.
    fn default() -> Self {
        AnyState::Cell(Cell::UNSEEN)
    }
}

impl AnyState {
    /// Returns `true` if the key is unseen.
    pub fn is_unseen(&self) -> bool {
        match self {
            AnyState::Cell(cell) => *cell == Cell::UNSEEN,
            AnyState::Wide(cell) => **cell == WideCell::UNSEEN,
            AnyState::Log(log) => **log == Log::EMPTY,
        }
    }

    /// Returns the number of log entries that fit into the allocated memory.
    pub fn log_capacity(&self) -> usize {
        match self {
            AnyState::Cell(_) | AnyState::Wide(_) => 0,
            AnyState::Log(log) => log.capacity(),
        }
    }

    /// Returns the cell, or an unseen one in place of another kind of state, which no limit with a
    /// cell has written.
    fn cell(&self) -> &Cell {
        match self {
            AnyState::Cell(cell) => cell,
            AnyState::Wide(_) | AnyState::Log(_) => &Cell::UNSEEN,
        }
    }

    fn cell_mut(&mut self) -> &mut Cell {
        if !matches!(self, AnyState::Cell(_)) {
            *self = AnyState::default();
        }
        match self {
            AnyState::Cell(cell) => cell,
            AnyState::Wide(_) | AnyState::Log(_) => unreachable!("replaced just above"),
        }
    }

    /// Returns the wide cell, or an unseen one.
    fn wide(&self) -> &WideCell {
        match self {
            AnyState::Wide(cell) => cell,
            AnyState::Cell(_) | AnyState::Log(_) => &WideCell::UNSEEN,
        }
    }

    fn wide_mut(&mut self) -> &mut WideCell {
        if !matches!(self, AnyState::Wide(_)) {
            *self = AnyState::Wide(Box::default());
        }
        match self {
            AnyState::Wide(cell) => cell,
            AnyState::Cell(_) | AnyState::Log(_) => unreachable!("replaced just above"),
        }
    }

    /// Returns the log, or an empty one for an unseen key.
    fn log(&self) -> &Log {
        static EMPTY: Log = Log::EMPTY;
        match self {
            AnyState::Log(log) => log,
            AnyState::Cell(_) | AnyState::Wide(_) => &EMPTY,
        }
    }

    fn log_mut(&mut self) -> &mut Log {
        if !matches!(self, AnyState::Log(_)) {
            *self = AnyState::Log(Box::default());
        }
        match self {
            AnyState::Log(log) => log,
            AnyState::Cell(_) | AnyState::Wide(_) => unreachable!("replaced just above"),
        }
    }
}

impl Algorithm for AnyLimit {
    type State = AnyState;

    #[inline]
    fn check(&self, state: &mut AnyState, now: Time, cost: u64) -> Decision {
        match self {
            AnyLimit::Cell(limit) => limit.check(state.cell_mut(), now, cost),
            AnyLimit::Wide(limit) => limit.check(state.wide_mut(), now, cost),
            AnyLimit::Log(limit) => limit.check(state.log_mut(), now, cost),
        }
    }

    fn growth(&self, state: &AnyState, now: Time, cost: u64) -> usize {
        match self {
            AnyLimit::Cell(_) | AnyLimit::Wide(_) => 0,
            AnyLimit::Log(limit) => limit.growth(state.log(), now, cost),
        }
    }

    fn grow(&self, state: &mut AnyState, by: usize) {
        if let AnyLimit::Log(limit) = self {
            limit.grow(state.log_mut(), by);
        }
    }

    fn log_capacity(&self, state: &AnyState) -> usize {
        state.log_capacity()
    }

    fn merge_newest(&self, state: &mut AnyState) {
        if let AnyLimit::Log(limit) = self {
            limit.merge_newest(state.log_mut());
        }
    }

    fn limit(&self) -> u64 {
        match self {
            AnyLimit::Cell(limit) => limit.limit(),
            AnyLimit::Wide(limit) => limit.limit(),
            AnyLimit::Log(limit) => limit.limit(),
        }
    }

    fn remaining(&self, state: &AnyState, now: Time) -> u64 {
        match self {
            AnyLimit::Cell(limit) => limit.remaining(state.cell(), now),
            AnyLimit::Wide(limit) => limit.remaining(state.wide(), now),
            AnyLimit::Log(limit) => limit.remaining(state.log(), now),
        }
    }

    fn used(&self, state: &AnyState, now: Time) -> u64 {
        match self {
            AnyLimit::Cell(limit) => limit.used(state.cell(), now),
            AnyLimit::Wide(limit) => limit.used(state.wide(), now),
            AnyLimit::Log(limit) => limit.used(state.log(), now),
        }
    }

    fn window(&self, state: &AnyState, now: Time) -> Option<Window> {
        match self {
            AnyLimit::Cell(limit) => limit.window(state.cell(), now),
            AnyLimit::Wide(limit) => limit.window(state.wide(), now),
            AnyLimit::Log(limit) => limit.window(state.log(), now),
        }
    }

    fn reset_after(&self, state: &AnyState, now: Time) -> Span {
        match self {
            AnyLimit::Cell(limit) => limit.reset_after(state.cell(), now),
            AnyLimit::Wide(limit) => limit.reset_after(state.wide(), now),
            AnyLimit::Log(limit) => limit.reset_after(state.log(), now),
        }
    }

    fn admits(&self, state: &AnyState, now: Time, cost: u64, remaining: u64) -> bool {
        match self {
            AnyLimit::Cell(limit) => limit.admits(state.cell(), now, cost, remaining),
            AnyLimit::Wide(limit) => limit.admits(state.wide(), now, cost, remaining),
            AnyLimit::Log(limit) => limit.admits(state.log(), now, cost, remaining),
        }
    }

    fn never_admits(&self, cost: u64) -> bool {
        match self {
            AnyLimit::Cell(limit) => limit.never_admits(cost),
            AnyLimit::Wide(limit) => limit.never_admits(cost),
            AnyLimit::Log(limit) => limit.never_admits(cost),
        }
    }

    fn retry_after(&self, state: &AnyState, now: Time, cost: u64) -> Span {
        match self {
            AnyLimit::Cell(limit) => limit.retry_after(state.cell(), now, cost),
            AnyLimit::Wide(limit) => limit.retry_after(state.wide(), now, cost),
            AnyLimit::Log(limit) => limit.retry_after(state.log(), now, cost),
        }
    }

    fn delay(&self, state: &AnyState, now: Time) -> Span {
        match self {
            AnyLimit::Cell(limit) => limit.delay(state.cell(), now),
            AnyLimit::Wide(limit) => limit.delay(state.wide(), now),
            AnyLimit::Log(limit) => limit.delay(state.log(), now),
        }
    }

    fn waiting(&self) -> Waiting {
        match self {
            AnyLimit::Cell(limit) => limit.waiting(),
            AnyLimit::Wide(limit) => limit.waiting(),
            AnyLimit::Log(limit) => limit.waiting(),
        }
    }

    fn supports(&self, verb: Verb) -> bool {
        match self {
            AnyLimit::Cell(limit) => limit.supports(verb),
            AnyLimit::Wide(limit) => limit.supports(verb),
            AnyLimit::Log(limit) => limit.supports(verb),
        }
    }

    fn charge(&self, state: &mut AnyState, now: Time, cost: u64) -> Span {
        match self {
            AnyLimit::Cell(limit) => limit.charge(state.cell_mut(), now, cost),
            AnyLimit::Wide(limit) => limit.charge(state.wide_mut(), now, cost),
            AnyLimit::Log(limit) => limit.charge(state.log_mut(), now, cost),
        }
    }

    fn record_denied(&self, state: &mut AnyState, now: Time, cost: u64) -> bool {
        match self {
            AnyLimit::Cell(limit) => limit.record_denied(state.cell_mut(), now, cost),
            AnyLimit::Wide(limit) => limit.record_denied(state.wide_mut(), now, cost),
            AnyLimit::Log(limit) => limit.record_denied(state.log_mut(), now, cost),
        }
    }

    fn refund(&self, state: &mut AnyState, now: Time, cost: u64) -> bool {
        match self {
            AnyLimit::Cell(limit) => limit.refund(state.cell_mut(), now, cost),
            AnyLimit::Wide(limit) => limit.refund(state.wide_mut(), now, cost),
            AnyLimit::Log(limit) => limit.refund(state.log_mut(), now, cost),
        }
    }

    fn charge_and_record(&self, state: &mut AnyState, now: Time, cost: u64) -> Charge {
        match self {
            AnyLimit::Cell(limit) => limit.charge_and_record(state.cell_mut(), now, cost),
            AnyLimit::Wide(limit) => limit.charge_and_record(state.wide_mut(), now, cost),
            AnyLimit::Log(limit) => limit.charge_and_record(state.log_mut(), now, cost),
        }
    }

    fn record(&self, state: &AnyState, cost: u64, waited: bool) -> Charge {
        match self {
            AnyLimit::Cell(limit) => limit.record(state.cell(), cost, waited),
            AnyLimit::Wide(limit) => limit.record(state.wide(), cost, waited),
            AnyLimit::Log(limit) => limit.record(state.log(), cost, waited),
        }
    }

    fn roll_back(&self, state: &mut AnyState, times: Times, charge: &Charge, most: u64) -> Option<Rollback> {
        match self {
            AnyLimit::Cell(limit) => limit.roll_back(state.cell_mut(), times, charge, most),
            AnyLimit::Wide(limit) => limit.roll_back(state.wide_mut(), times, charge, most),
            AnyLimit::Log(limit) => limit.roll_back(state.log_mut(), times, charge, most),
        }
    }

    fn counts(&self, state: &AnyState, times: Times, charge: &Charge) -> bool {
        match self {
            AnyLimit::Cell(limit) => limit.counts(state.cell(), times, charge),
            AnyLimit::Wide(limit) => limit.counts(state.wide(), times, charge),
            AnyLimit::Log(limit) => limit.counts(state.log(), times, charge),
        }
    }

    fn shift_down(&self, rollback: &Rollback, charge: &mut Charge) {
        match self {
            AnyLimit::Cell(limit) => limit.shift_down(rollback, charge),
            AnyLimit::Wide(limit) => limit.shift_down(rollback, charge),
            AnyLimit::Log(limit) => limit.shift_down(rollback, charge),
        }
    }

    fn cap_height(&self, state: &AnyState, charge: &mut Charge) {
        match self {
            AnyLimit::Cell(limit) => limit.cap_height(state.cell(), charge),
            AnyLimit::Wide(limit) => limit.cap_height(state.wide(), charge),
            AnyLimit::Log(limit) => limit.cap_height(state.log(), charge),
        }
    }

    fn next_window(&self, state: &AnyState, now: Time) -> Time {
        match self {
            AnyLimit::Cell(limit) => limit.next_window(state.cell(), now),
            AnyLimit::Wide(limit) => limit.next_window(state.wide(), now),
            AnyLimit::Log(limit) => limit.next_window(state.log(), now),
        }
    }

    fn debt(&self, state: &AnyState, now: Time) -> Option<Debt> {
        match self {
            AnyLimit::Cell(limit) => limit.debt(state.cell(), now),
            AnyLimit::Wide(limit) => limit.debt(state.wide(), now),
            AnyLimit::Log(limit) => limit.debt(state.log(), now),
        }
    }

    fn is_idle(&self, state: &AnyState, now: Time) -> bool {
        match self {
            AnyLimit::Cell(limit) => limit.is_idle(state.cell(), now),
            AnyLimit::Wide(limit) => limit.is_idle(state.wide(), now),
            AnyLimit::Log(limit) => limit.is_idle(state.log(), now),
        }
    }

    /// Discards the state if the algorithm has changed.
    fn adopt(&self, old: &Self, state: &mut AnyState, times: Times) -> Adopted {
        match (self, old) {
            (AnyLimit::Cell(new), AnyLimit::Cell(old)) => new.adopt(old, state.cell_mut(), times),
            (AnyLimit::Wide(new), AnyLimit::Wide(old)) => new.adopt(old, state.wide_mut(), times),
            (AnyLimit::Wide(new), AnyLimit::Cell(CellLimit::SlidingWindow(old))) => {
                let (wide, adopted) = new.adopt_from(old, state.cell());
                *state = AnyState::Wide(Box::new(wide));
                adopted
            }
            (AnyLimit::Cell(CellLimit::SlidingWindow(new)), AnyLimit::Wide(old)) => {
                let (cell, adopted) = new.adopt_from(old, state.wide());
                *state = AnyState::Cell(cell);
                adopted
            }
            (AnyLimit::Log(new), AnyLimit::Log(old)) => new.adopt(old, state.log_mut(), times),
            _ => discard(state),
        }
    }
}

impl AnyLimit {
    /// Converts a state written by `old`, keeping the time until the key is fully recovered, as
    /// redis-cell does. For buckets; other algorithms discard the state.
    pub fn adopt_recovery_time(&self, old: &AnyLimit, state: &mut AnyState) -> Adopted {
        match (self, old) {
            (AnyLimit::Cell(new), AnyLimit::Cell(old)) => new.adopt_recovery_time(old, state.cell_mut()),
            _ => discard(state),
        }
    }
}
