//! What an algorithm has to say; everything that callers do is built from it once, in `verbs.rs` and `several.rs`.
//!
//! The heart of it is one sentence: **a call is allowed when its cost is at most what remains.** So an
//! algorithm answers what remains, how long the waits are, and how a charge changes its state. All of these
//! are pure functions of the limit's numbers, one key's state and the time.

use crate::decision::{Decision, Standing};
use crate::time::{Span, Time};
use crate::verbs::Verbs as _;

/// A limit's rules. `now` may step back between calls; each algorithm's "Clock" line says what happens then.
pub trait Algorithm {
    /// What is kept for one key; the default is a key that has never called.
    type State: Clone + Default;

    /// The most that an idle key could take at once.
    fn limit(&self) -> u32;

    /// The cost that would be allowed now.
    fn remaining(&self, state: &Self::State, now: Time) -> u32;

    /// How long until the key is as good as new, rounded up.
    fn reset_after(&self, state: &Self::State, now: Time) -> Span;

    /// How long until `cost` would be allowed, rounded up. Asked only when the cost is above what remains and
    /// not above the limit.
    fn retry_after(&self, state: &Self::State, now: Time, cost: u32) -> Span;

    /// How long a call that is allowed now has to wait before it acts, rounded up.
    fn delay(&self, _state: &Self::State, _now: Time) -> Span {
        Span::ZERO
    }

    /// How callers of this limit can wait for their turn.
    fn waiting(&self) -> Waiting {
        Waiting::Retry
    }

    /// Whether the limit offers this verb.
    fn offers(&self, _verb: Verb) -> bool {
        true
    }

    /// Takes `cost` in any case, and says how long it is then until the key is as good as new. Callers ask what
    /// remains first; debt (by borrowing or settling) is the exception.
    fn charge(&self, state: &mut Self::State, now: Time, cost: u32) -> Span;

    /// Enters a denied call, for limits that count them too. Whether it was entered.
    fn enter_denied(&self, _state: &mut Self::State, _now: Time, _cost: u32) -> bool {
        false
    }

    /// Gives back up to `cost`. Whether that was anything.
    fn refund(&self, state: &mut Self::State, now: Time, cost: u32) -> bool;

    /// What a receipt has to remember of the charge just made.
    fn record(&self, state: &Self::State, cost: u32, waited: bool) -> Charge;

    /// Gives back what still counts of a charge, `most` at the most; `None` if that was nothing.
    ///
    /// What had leaked from a bucket by the latest change has leaked, even if the clock has stepped back since.
    fn give_back(&self, state: &mut Self::State, times: Times, charge: &Charge, most: u32) -> Option<Cut>;

    /// Moves an open charge to its new place after something below it, or of it, was cut out.
    fn close_gap(&self, cut: &Cut, charge: &mut Charge);

    /// Moves an open charge to its new place after a refund, which takes from the top.
    fn lower_to(&self, state: &Self::State, charge: &mut Charge);

    /// When the next window starts, or the next unit is there; `now` for an idle key.
    fn next_window(&self, state: &Self::State, now: Time) -> Time;

    /// Whether the key has recovered, so that a store may forget it: under a clock that does not step back no
    /// later decision can tell.
    fn is_idle(&self, state: &Self::State, now: Time) -> bool;

    /// Reads the state that `old` left, so that a limit whose numbers change keeps what its keys have used.
    fn adopt(&self, old: &Self, state: &mut Self::State, now: Time)
    where
        Self: Sized;

    /// May a call of this cost happen now? If so it is charged. Cost 0 is always allowed and changes nothing.
    ///
    /// This is the one decision there is. It stands here, and not among the other verbs, so that a limit of any
    /// kind can hand it on as a whole.
    #[inline]
    fn check(&self, state: &mut Self::State, now: Time, cost: u32) -> Decision {
        let remaining = self.remaining(state, now);
        if cost > remaining {
            let entered = self.enter_denied(state, now, cost);
            let remaining = if entered { self.remaining(state, now) } else { remaining };
            return self.denied(state, now, cost, remaining);
        }
        if cost == 0 {
            return Decision::yes(self.standing_with(state, now, remaining), Span::ZERO);
        }
        let delay = self.delay(state, now);
        let reset_after = self.charge(state, now, cost);
        Decision::yes(Standing { limit: self.limit(), remaining: remaining - cost, reset_after }, delay)
    }
}

/// How callers can wait for their turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Not at all: a denied call has to come back.
    Retry,
    /// By borrowing: a reservation is charged now and acts when what it borrowed has come in.
    Borrow,
    /// In line: each allowed call is told its slot.
    Queue,
}

/// The verbs that not every limit offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Give cost back.
    Refund,
    /// Take as much as there is, up to a cost.
    Take,
    /// Charge now, act after a delay, cancel or settle later.
    Reserve,
}

/// What a receipt remembers of a charge under one limit.
///
/// Picture the charges of a key as a pile: each lies on what was there before. A charge remembers the height of
/// the pile just after it. Giving it back cuts its piece out, and what lies above sinks by as much; a refund
/// takes from the top. Without keeping heights true, two returns in an unlucky order would give back more than
/// was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charge {
    /// The cost that was charged.
    pub(crate) cost: u32,
    /// Which pile: the window, or the log entry's time; a bucket has only one.
    pub(crate) pile: u64,
    /// How high the pile was just after the charge: what a window or log entry then held; for a bucket, whose
    /// pile is measured in time, the moment it was then full.
    pub(crate) height: Height,
    /// Whether the call was told to wait before acting.
    pub(crate) waited: bool,
}

/// A height: whole units, and for a bucket the part of a microsecond over the limit's count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Height {
    pub(crate) whole: u64,
    pub(crate) part: u32,
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
    pub(crate) top: Height,
    pub(crate) bottom: Height,
}

impl Cut {
    /// How many whole units were cut out.
    pub(crate) fn size(&self) -> u64 {
        self.top.whole - self.bottom.whole
    }

    /// A height in the same pile after the cut; `sink` lowers a height by the size of the cut.
    pub(crate) fn lower(&self, height: Height, sink: impl Fn(Height) -> Height) -> Height {
        if height >= self.top { sink(height) } else { height.min(self.bottom) }
    }
}

impl Charge {
    /// The cost that was charged.
    pub fn cost(&self) -> u32 {
        self.cost
    }
}

/// The pile of a window or a log entry: whole units.
impl Charge {
    pub(crate) fn on_pile(cost: u32, pile: u64, height: u64) -> Charge {
        Charge { cost, pile, height: Height { whole: height, part: 0 }, waited: false }
    }

    /// What can be given back of a charge from a pile that holds `left`, and the cut that makes.
    pub(crate) fn cut(&self, most: u32, left: u64) -> Option<Cut> {
        let give = u64::from(most).min(self.height.whole).min(left);
        let bottom = Height { whole: self.height.whole - give, part: 0 };
        (give > 0).then_some(Cut { pile: self.pile, top: self.height, bottom })
    }

    pub(crate) fn sink(&mut self, cut: &Cut) {
        if self.pile == cut.pile {
            // Cannot wrap: only heights at the top of the cut or above it sink, by the size of the cut.
            let size = cut.size();
            self.height = cut.lower(self.height, |height| Height { whole: height.whole - size, part: 0 });
        }
    }

    pub(crate) fn lower_to(&mut self, left: u64) {
        self.height.whole = self.height.whole.min(left);
    }
}
