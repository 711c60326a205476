//! Receipts: what a charge can still give back.
//!
//! Picture the charges of a key as a pile: each lies on what was there before, and remembers how high the pile was
//! just after it. Giving a charge back cuts its piece out, and what lies above sinks by as much; a refund takes from
//! the top. A window or a log entry is a pile of units; a bucket is a pile of time, which leaks away at the bottom.
//!
//! ```text
//!   C ┐ 9          C ┐ 7         cancel A (2): what lay above it sinks,
//!   B ┤ 6    ->    B ┤ 4         so that cancelling B later gives back B's 4
//!   A ┘ 2                        and nothing of C's
//! ```
//!
//! Without true heights, two returns in an unlucky order would give back more than was taken.

use crate::algorithm::Algorithm;
use crate::time::{Exact, Time};
use alloc::boxed::Box;
use core::slice;

/// What a receipt remembers of a charge under one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charge {
    /// The cost that was charged.
    pub(crate) cost: u32,
    /// Which pile: the window, or the log entry's time; a bucket has only one.
    pub(crate) pile: u64,
    /// How high the pile was just after the charge: what a window or log entry then held; for a bucket, whose
    /// pile is measured in time, the moment it was then full.
    pub(crate) height: Exact,
    /// Whether the call was told to wait before acting.
    pub(crate) waited: bool,
}

/// What one call charged, under each of its limits.
#[derive(Clone, Default, Debug)]
pub enum Charges {
    /// Nothing that could be given back.
    #[default]
    None,
    /// Under one limit, as nearly always.
    One(Charge),
    /// Under each of several.
    Several(Box<[Charge]>),
}

impl Charges {
    /// Charges a call to all limits as of a moment, in any case.
    pub fn make<A: Algorithm>(limits: &[A], states: &mut [A::State], as_of: Time, cost: u32) -> Charges {
        let charge = |(limit, state): (&A, &mut A::State)| {
            limit.charge(state, as_of, cost);
            limit.record(state, cost, false)
        };
        let mut charges = limits.iter().zip(states).map(charge);
        match (charges.len(), charges.next()) {
            (1, Some(one)) => Charges::One(one),
            (_, Some(first)) => Charges::Several(core::iter::once(first).chain(charges).collect()),
            (_, None) => Charges::None,
        }
    }

    /// One for each limit.
    pub fn each(&self) -> &[Charge] {
        match self {
            Charges::None => &[],
            Charges::One(charge) => slice::from_ref(charge),
            Charges::Several(charges) => charges,
        }
    }

    pub(crate) fn each_mut(&mut self) -> &mut [Charge] {
        match self {
            Charges::None => &mut [],
            Charges::One(charge) => slice::from_mut(charge),
            Charges::Several(charges) => charges,
        }
    }
}

/// When something is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// The time it is.
    pub now: Time,
    /// The latest time at which the key was charged or given something back.
    pub latest: Time,
}

/// What was cut out of a pile: from a height down to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    pub(crate) pile: u64,
    pub(crate) top: Exact,
    pub(crate) bottom: Exact,
}

impl Cut {
    /// How many whole units were cut out.
    pub(crate) fn size(&self) -> u64 {
        self.top.whole - self.bottom.whole
    }

    /// A height in the same pile after the cut; `sink` lowers a height by the size of the cut.
    pub(crate) fn lower(&self, height: Exact, sink: impl Fn(Exact) -> Exact) -> Exact {
        if height >= self.top { sink(height) } else { height.min(self.bottom) }
    }
}

impl Charge {
    /// The cost that was charged.
    pub fn cost(&self) -> u32 {
        self.cost
    }
}

/// For the pile of a window or a log entry, which is in whole units.
impl Charge {
    pub(crate) fn on_pile(cost: u32, pile: u64, height: u64) -> Charge {
        Charge { cost, pile, height: Exact { whole: height, part: 0 }, waited: false }
    }

    /// What can be given back of a charge from a pile that holds `left`, and the cut that makes.
    pub(crate) fn cut(&self, most: u32, left: u64) -> Option<Cut> {
        let give = u64::from(most).min(self.height.whole).min(left);
        let bottom = Exact { whole: self.height.whole - give, part: 0 };
        (give > 0).then_some(Cut { pile: self.pile, top: self.height, bottom })
    }

    pub(crate) fn sink(&mut self, cut: &Cut) {
        if self.pile == cut.pile {
            // Cannot wrap: only heights at the top of the cut or above it sink, by the size of the cut.
            let size = cut.size();
            self.height = cut.lower(self.height, |height| Exact { whole: height.whole - size, part: 0 });
        }
    }

    pub(crate) fn lower_to(&mut self, left: u64) {
        self.height.whole = self.height.whole.min(left);
    }
}
