//! What an algorithm has to say; everything that callers do is built from it once, in `verbs.rs` and `several.rs`.
//!
//! The heart of it is one sentence: **a call is allowed when its cost is at most what remains.** So an
//! algorithm answers what remains, how long the waits are, and how a charge changes its state. All of these
//! are pure functions of the limit's numbers, one key's state and the time.

use crate::decision::{Decision, Standing};
use crate::pile::{Charge, Cut, Times};
use crate::time::{Span, Time};
use crate::verbs::Verbs as _;

/// A limit's rules. `now` may step back between calls; each algorithm's "Clock" line says what happens then.
///
/// It is implemented here only: a [`Charge`] cannot be made elsewhere.
pub trait Algorithm {
    /// What is kept for one key; the default is a key that has never called. A state belongs to the limit that wrote
    /// it: another one reads it only through [`Algorithm::adopt`].
    type State: Clone + Default;

    /// The most that an idle key could take at once.
    fn limit(&self) -> u32;

    /// The cost that would be allowed now.
    fn remaining(&self, state: &Self::State, now: Time) -> u32;

    /// How long until the key is as good as new, rounded up.
    fn reset_after(&self, state: &Self::State, now: Time) -> Span;

    /// How long until `cost`, which is not allowed now and not above the limit, would be allowed. Rounded up.
    fn retry_after(&self, state: &Self::State, now: Time, cost: u32) -> Span;

    /// Whether a call of this cost is allowed now, when so much remains: the one sentence. Only `smooth`, which lets the next
    /// caller pay, has another.
    #[inline]
    fn admits(&self, _state: &Self::State, _now: Time, cost: u32, remaining: u32) -> bool {
        cost <= remaining
    }

    /// Whether no wait would let a call of this cost pass.
    #[inline]
    fn never_admits(&self, cost: u32) -> bool {
        cost > self.limit()
    }

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

    /// How much the key owes; `None` if it has recovered.
    #[inline]
    fn debt(&self, state: &Self::State, now: Time) -> Option<Debt> {
        if self.is_idle(state, now) {
            return None;
        }
        let Standing { limit, remaining, reset_after } = self.standing(state, now);
        let used = u64::from(limit.saturating_sub(remaining));
        // Cannot wrap or divide by zero: both are below 2^32, and no limit is 0.
        Some(Debt { share: (used << 32) / u64::from(limit).max(1), recovers_in: reset_after })
    }

    /// Reads the state that `old` left, so that a limit whose numbers change keeps what its keys have used.
    ///
    /// `times.latest` is the latest time known, `now` at least: a step back of the clock is not to be taken for use.
    fn adopt(&self, old: &Self, state: &mut Self::State, times: Times)
    where
        Self: Sized;

    /// May a call of this cost happen now? If so it is charged. Cost 0 is always allowed and changes nothing.
    ///
    /// It is always put in place: called as a function it would hand the state and the decision over in memory, where
    /// reading what was just written in smaller pieces takes longer than deciding.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: docs/benchmarks.md, what was tried")]
    fn check(&self, state: &mut Self::State, now: Time, cost: u32) -> Decision {
        match self.try_charge(state, now, cost) {
            Ok(charged) => charged.into(),
            Err(known) => self.check_in_full(state, now, cost, known),
        }
    }

    /// The short way of most checks: a call that costs something and is allowed.
    ///
    /// # Errors
    /// When it is not, or when it takes the longer way to know. Then nothing has changed.
    #[doc(hidden)]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn try_charge(&self, state: &mut Self::State, now: Time, cost: u32) -> Result<Charged, NotCharged> {
        let remaining = remaining_after(self.remaining(state, now), cost)?;
        Ok(self.take_cost(state, now, cost, remaining))
    }

    /// Takes the cost of a call that is allowed and leaves so much remaining.
    #[doc(hidden)]
    #[inline]
    fn take_cost(&self, state: &mut Self::State, now: Time, cost: u32, remaining: u32) -> Charged {
        let delay = self.delay(state, now);
        let reset_after = self.charge(state, now, cost);
        Charged { standing: Standing { limit: self.limit(), remaining, reset_after }, delay }
    }

    /// The one decision there is: allowed, denied or free of cost.
    #[doc(hidden)]
    #[inline]
    fn check_in_full(&self, state: &mut Self::State, now: Time, cost: u32, known: NotCharged) -> Decision {
        let remaining = known.remaining.unwrap_or_else(|| self.remaining(state, now));
        if !self.admits(state, now, cost, remaining) {
            let entered = self.enter_denied(state, now, cost);
            let remaining = if entered { self.remaining(state, now) } else { remaining };
            return self.denied(state, now, cost, remaining);
        }
        if cost == 0 {
            return Decision::yes(self.standing_with(state, now, remaining), Span::ZERO);
        }
        self.take_cost(state, now, cost, remaining.saturating_sub(cost)).into()
    }
}

/// How much a key owes: a store that has to forget somebody forgets who owes least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Debt {
    /// The share of its limit that it has used, of 2^32; a bucket's may be more after debt.
    pub share: u64,
    /// How long until it has recovered. It decides between those whose share is the same.
    pub recovers_in: Span,
}

impl Debt {
    /// Under several limits: the largest share, and the longest time.
    #[must_use]
    pub fn max_of_each(self, other: Debt) -> Debt {
        Debt { share: self.share.max(other.share), recovers_in: self.recovers_in.max(other.recovers_in) }
    }
}

/// A call was allowed, and took its cost.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charged {
    pub(crate) standing: Standing,
    pub(crate) delay: Span,
}

impl From<Charged> for Decision {
    #[inline]
    fn from(Charged { standing, delay }: Charged) -> Decision {
        Decision::yes(standing, delay)
    }
}

/// The short way did not do.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotCharged {
    /// What remains, if that has been worked out.
    pub remaining: Option<u32>,
}

impl NotCharged {
    /// Nothing has been worked out.
    pub const UNKNOWN: NotCharged = NotCharged { remaining: None };
}

/// What remains after a call that takes something.
#[inline]
pub(crate) const fn remaining_after(remaining: u32, cost: u32) -> Result<u32, NotCharged> {
    // A cost of 0 wraps to the largest number of all: one comparison instead of two.
    if cost.wrapping_sub(1) >= remaining {
        Err(NotCharged { remaining: Some(remaining) })
    } else {
        Ok(remaining - cost)
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
    /// By taking the next ticket: a call is charged now and acts when what was taken before it is paid for.
    Ticket,
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
    /// Charge now, act after a delay.
    CheckWithin,
}
