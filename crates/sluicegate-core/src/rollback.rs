//! Rollback: what a charge can still return.
//!
//! The charges of a key form a stack. Each lies on top of what was there before, and records the
//! height of the stack just after it. Returning a charge removes its piece, and everything above it
//! moves down by as much; a refund takes from the top. A window or a log entry is a stack of units.
//! A bucket is a stack of time, which leaks away at the bottom.
//!
//! ```text
//!   C ┐ 9          C ┐ 7         cancel A (2): what lies above it moves down,
//!   B ┤ 6    ->    B ┤ 4         so that cancelling B later returns B's 4
//!   A ┘ 2                        and nothing of C's
//! ```
//!
//! Without exact heights, two returns in an unlucky order would return more than was charged.

use crate::algorithm::Algorithm;
use crate::time::{Exact, Time};
use alloc::boxed::Box;
use core::slice;

/// What a receipt records of a charge under one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charge {
    /// The cost that was charged.
    pub(crate) cost: u64,
    /// Which stack: the window, or the time of the log entry. A bucket has only one.
    pub(crate) stack: u64,
    /// The height of the stack just after the charge: what the window or log entry then held. For a
    /// bucket, whose stack is measured in time, the moment at which it would then be full.
    pub(crate) height: Exact,
    /// Whether the call had to wait before acting.
    pub(crate) waited: bool,
}

/// The charges of one call, one per limit.
#[derive(Clone, Default, Debug)]
pub enum Charges {
    /// Nothing that could be returned.
    #[default]
    None,
    /// The charge of a single limit: the common case, without an allocation.
    One(Charge),
    /// The charges of a list of limits.
    Many(Box<[Charge]>),
}

impl Charges {
    /// Charges a call to all limits as of a moment, whatever remains.
    pub fn make<A: Algorithm>(limits: &[A], states: &mut [A::State], as_of: Time, cost: u64) -> Charges {
        let charge = |(limit, state): (&A, &mut A::State)| limit.charge_and_record(state, as_of, cost);
        let mut charges = limits.iter().zip(states).map(charge);
        match (charges.len(), charges.next()) {
            (1, Some(one)) => Charges::One(one),
            (_, Some(first)) => Charges::Many(core::iter::once(first).chain(charges).collect()),
            (_, None) => Charges::None,
        }
    }

    /// Returns the charges in the order of the limits.
    pub fn each(&self) -> &[Charge] {
        match self {
            Charges::None => &[],
            Charges::One(charge) => slice::from_ref(charge),
            Charges::Many(charges) => charges,
        }
    }

    pub(crate) fn each_mut(&mut self) -> &mut [Charge] {
        match self {
            Charges::None => &mut [],
            Charges::One(charge) => slice::from_mut(charge),
            Charges::Many(charges) => charges,
        }
    }
}

/// The times that a return depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// The current time.
    pub now: Time,
    /// The latest time at which the key's state is known to have changed.
    pub latest: Time,
}

/// The piece that was removed from a stack, from `top` down to `bottom`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rollback {
    pub(crate) stack: u64,
    pub(crate) top: Exact,
    pub(crate) bottom: Exact,
}

impl Rollback {
    /// Returns the number of whole units removed.
    pub(crate) fn size(&self) -> u64 {
        self.top.whole - self.bottom.whole
    }

    /// Returns where a height of the same stack is after the removal. `move_down` subtracts the
    /// size of the removed piece.
    pub(crate) fn shift(&self, height: Exact, move_down: impl Fn(Exact) -> Exact) -> Exact {
        if height >= self.top { move_down(height) } else { height.min(self.bottom) }
    }
}

impl Charge {
    /// A charge to a state that is gone: nothing can be returned, and no settlement exceeds it. Its
    /// stack is later than any other, and early enough to add periods to it.
    pub(crate) const VOID: Charge =
        Charge { cost: u64::MAX, stack: 1 << 62, height: Exact::ZERO, waited: false };

    /// Returns the cost that was charged.
    pub fn cost(&self) -> u64 {
        self.cost
    }
}

/// Charges on the stack of a window or a log entry, which is in whole units.
impl Charge {
    pub(crate) fn on_stack(cost: u64, stack: u64, height: u64) -> Charge {
        Charge { cost, stack, height: Exact { whole: height, part: 0 }, waited: false }
    }

    /// Returns what a stack that holds `left` can return of this charge, at most `most`. `None` if
    /// that is nothing.
    pub(crate) fn roll_back(&self, most: u64, left: u64) -> Option<Rollback> {
        let returned = most.min(self.height.whole).min(left);
        let bottom = Exact { whole: self.height.whole - returned, part: 0 };
        (returned > 0).then_some(Rollback { stack: self.stack, top: self.height, bottom })
    }

    /// Moves the charge to its new height after another one was rolled back.
    pub(crate) fn shift_down(&mut self, rollback: &Rollback) {
        if self.stack == rollback.stack {
            // Cannot wrap: only heights at or above the top move down, by the size of the piece.
            let size = rollback.size();
            self.height = rollback.shift(self.height, |height| Exact { whole: height.whole - size, part: 0 });
        }
    }

    /// Lowers the charge to a stack that holds only `left` after a refund.
    pub(crate) fn cap_height(&mut self, left: u64) {
        self.height.whole = self.height.whole.min(left);
    }
}
