//! What an algorithm has to say; everything that callers do is built from it once, in `verbs.rs` and `several.rs`.
//!
//! The heart of it is one sentence: **a call is allowed when its cost is at most what remains.** So an
//! algorithm answers what remains, how long the waits are, and how a charge changes its state. All of these
//! are pure functions of the limit's numbers, one key's state and the time.

use crate::time::{Span, Time};

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

    /// Takes `cost` in any case. Callers ask what remains first; debt (by borrowing or settling) is the exception.
    fn charge(&self, state: &mut Self::State, now: Time, cost: u32);

    /// Enters a denied call, for limits that count them too. Whether it was entered.
    fn enter_denied(&self, _state: &mut Self::State, _now: Time, _cost: u32) -> bool {
        false
    }

    /// Gives back up to `cost`.
    fn refund(&self, state: &mut Self::State, now: Time, cost: u32);

    /// What a receipt has to remember of the charge just made.
    fn record(&self, state: &Self::State, cost: u32, waited: bool) -> Charge;

    /// Gives back what still counts of a charge, `most` at the most. Whether that was anything.
    fn give_back(&self, state: &mut Self::State, now: Time, charge: &Charge, most: u32) -> bool;

    /// Lowers what an open charge is worth after something was given back to its key. Without it, two returns
    /// in an unlucky order would give back more than was taken.
    fn clip(&self, state: &Self::State, charge: &mut Charge);

    /// When the next window starts, or the next unit is there; `now` for an idle key.
    fn next_window(&self, state: &Self::State, now: Time) -> Time;

    /// Whether the key has recovered, so that a store may forget it: under a clock that does not step back no
    /// later decision can tell.
    fn is_idle(&self, state: &Self::State, now: Time) -> bool;

    /// Reads the state that `old` left, so that a limit whose numbers change keeps what its keys have used.
    fn adopt(&self, old: &Self, state: &mut Self::State, now: Time);
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

/// What a receipt remembers of a charge under one limit. Its fields mean what the algorithm's file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charge {
    /// The cost that was charged.
    pub(crate) cost: u32,
    /// The most that can still be given back of it.
    pub(crate) worth: u32,
    /// Where the cost went: the moment the bucket was then full, the window's place, the log entry's time.
    pub(crate) at: u64,
    /// The part of a microsecond that belongs to `at`, over the limit's count.
    pub(crate) part: u32,
    /// Whether the call was told to wait before acting.
    pub(crate) waited: bool,
}

impl Charge {
    /// The cost that was charged.
    pub fn cost(&self) -> u32 {
        self.cost
    }
}
