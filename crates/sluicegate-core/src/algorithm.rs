//! The trait that every algorithm implements. All verbs are built on it once, in `verbs.rs` for one
//! limit and in `all_of.rs` for a list.
//!
//! The rule behind it is one sentence: **a call is allowed if its cost is at most what remains.**
//! So an algorithm computes what remains, how long the waits are, and how a charge changes the
//! state. All of these are pure functions of the limit's parameters, one key's state and the time.

use crate::decision::{Decision, Standing};
use crate::rescaling::Adopted;
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{Span, Time};
use crate::usage::Window;
use crate::verbs::Verbs as _;

/// A rate-limiting algorithm with its parameters.
///
/// `now` may step back between calls; the "Clock" line of each algorithm says what happens then.
/// The trait is implemented in this crate only: a [`Charge`] cannot be created elsewhere.
pub trait Algorithm {
    /// What is kept per key; the default is an unseen key. A state belongs to the limit that wrote
    /// it: another limit reads it only through [`Algorithm::adopt`].
    type State: Clone + Default;

    /// Returns the highest cost admitted at once for an idle key.
    fn limit(&self) -> u64;

    /// Returns the cost that would be allowed now, rounded down.
    fn remaining(&self, state: &Self::State, now: Time) -> u64;

    /// Returns what is used, rounded up: see [`Usage`](crate::Usage). It may exceed the limit.
    fn used(&self, state: &Self::State, now: Time) -> u64;

    /// Returns the current window, on the clock of `now`.
    fn window(&self, _state: &Self::State, _now: Time) -> Option<Window> {
        None
    }

    /// Returns the time until the key is fully recovered, rounded up.
    fn reset_after(&self, state: &Self::State, now: Time) -> Span;

    /// Returns the time until `cost` would be allowed, rounded up. Called only for a cost that is
    /// denied now and does not exceed the limit.
    fn retry_after(&self, state: &Self::State, now: Time, cost: u64) -> Span;

    /// Returns `true` if a call of this cost is allowed now, given what remains. Only `smooth`,
    /// where the next caller pays, has a rule of its own.
    #[inline]
    fn admits(&self, _state: &Self::State, _now: Time, cost: u64, remaining: u64) -> bool {
        cost <= remaining
    }

    /// Returns `true` if no wait would make a call of this cost allowed.
    #[inline]
    fn never_admits(&self, cost: u64) -> bool {
        cost > self.limit()
    }

    /// Returns how long a call that is allowed now must wait before it acts, rounded up.
    fn delay(&self, _state: &Self::State, _now: Time) -> Span {
        Span::ZERO
    }

    /// Returns how callers of this limit can wait.
    fn waiting(&self) -> Waiting {
        Waiting::Retry
    }

    /// Returns `true` if the limit supports this verb.
    fn supports(&self, _verb: Verb) -> bool {
        true
    }

    /// Charges `cost`, whatever remains, and returns the time until the key is then fully
    /// recovered. Callers check what remains first, except to create debt by borrowing or settling.
    fn charge(&self, state: &mut Self::State, now: Time, cost: u64) -> Span;

    /// Returns how many log entries more than it has memory for the state would need if a call of
    /// this cost came now: 0 if the call would not be recorded, or is recorded in place.
    #[inline]
    fn growth(&self, _state: &Self::State, _now: Time, _cost: u64) -> usize {
        0
    }

    /// Allocates memory for this many log entries.
    fn grow(&self, _state: &mut Self::State, _by: usize) {}

    /// Returns the number of log entries that fit into the allocated memory.
    fn log_capacity(&self, _state: &Self::State) -> usize {
        0
    }

    /// Merges the newest log entry with the one before it, and frees unused memory. The cost of
    /// both counts until the newest ages out, so no more is admitted.
    fn merge_newest(&self, _state: &mut Self::State) {}

    /// Records a denied call, for limits that count those as well. Returns `true` if it was
    /// recorded.
    fn record_denied(&self, _state: &mut Self::State, _now: Time, _cost: u64) -> bool {
        false
    }

    /// Returns up to `cost` to the key. The result is `true` if any cost was returned.
    fn refund(&self, state: &mut Self::State, now: Time, cost: u64) -> bool;

    /// Charges `cost`, whatever remains, and returns what a later rollback needs.
    fn charge_and_record(&self, state: &mut Self::State, now: Time, cost: u64) -> Charge {
        self.charge(state, now, cost);
        self.record(state, cost, false)
    }

    /// Returns what a receipt has to record of the charge just made.
    fn record(&self, state: &Self::State, cost: u64, waited: bool) -> Charge;

    /// Returns to the key the part of a charge that still counts, at most `most`. The result is
    /// `None` if there was no such part.
    ///
    /// What had leaked from a bucket by the latest change stays leaked, even if the clock has
    /// stepped back since.
    fn roll_back(
        &self,
        state: &mut Self::State,
        times: Times,
        charge: &Charge,
        most: u64,
    ) -> Option<Rollback>;

    /// Returns `true` if a part of a charge still counts, so that a rollback would return it.
    fn counts(&self, state: &Self::State, times: Times, charge: &Charge) -> bool
    where
        Self::State: Clone,
    {
        self.roll_back(&mut state.clone(), times, charge, charge.cost()).is_some()
    }

    /// Moves an open charge to its new height after another charge, or part of it, was rolled back.
    fn shift_down(&self, rollback: &Rollback, charge: &mut Charge);

    /// Moves an open charge to its new height after a refund, which takes from the top of the
    /// stack.
    fn cap_height(&self, state: &Self::State, charge: &mut Charge);

    /// Returns when the next window starts or the next unit is available; `now` for an idle key.
    fn next_window(&self, state: &Self::State, now: Time) -> Time;

    /// Returns `true` if the key is fully recovered, so that a store may drop it: unless the clock
    /// steps back, no later decision can tell.
    fn is_idle(&self, state: &Self::State, now: Time) -> bool;

    /// Returns the key's debt; `None` if it is fully recovered.
    #[inline]
    fn debt(&self, state: &Self::State, now: Time) -> Option<Debt> {
        if self.is_idle(state, now) {
            return None;
        }
        let Standing { limit, remaining, reset_after } = self.standing(state, now);
        let used = limit.saturating_sub(remaining);
        // No limit is 0. A limit can have 40 bits, so 64 are not enough for the largest ones.
        let share = match u32::try_from(used) {
            Ok(used) => (u64::from(used) << 32) / limit.max(1),
            Err(_) => u64::try_from((u128::from(used) << 32) / u128::from(limit.max(1))).unwrap_or(u64::MAX),
        };
        Some(Debt { share, used, recovers_in: reset_after })
    }

    /// Converts a state written by `old`, so that a limit whose parameters change keeps what its
    /// keys have used. Returns what becomes of the charges; [`crate::receipts::Receipts::adopt`]
    /// converts both.
    ///
    /// `times.latest` is the latest known time, at least `now`: a step back of the clock must not
    /// count as usage.
    fn adopt(&self, old: &Self, state: &mut Self::State, times: Times) -> Adopted
    where
        Self: Sized;

    /// Decides a call, and charges it if it is allowed. A cost of 0 is always allowed and changes
    /// nothing.
    ///
    /// Always inlined: an out-of-line call would pass the state and the decision through memory,
    /// where reading back what was just written in smaller pieces takes longer than deciding.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: docs/benchmark-notes.md")]
    fn check(&self, state: &mut Self::State, now: Time, cost: u64) -> Decision {
        match self.try_charge(state, now, cost) {
            Ok(charged) => charged.into(),
            Err(known) => self.check_in_full(state, now, cost, known),
        }
    }

    /// The fast path of [`Algorithm::check`]: a call with a nonzero cost that is allowed.
    ///
    /// # Errors
    /// If the call is not that, or only the full decision can tell. Nothing has changed then.
    #[doc(hidden)]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `Algorithm::check`")]
    fn try_charge(&self, state: &mut Self::State, now: Time, cost: u64) -> Result<Charged, NotCharged> {
        let remaining = remaining_after(self.remaining(state, now), cost)?;
        Ok(self.take_cost(state, now, cost, remaining))
    }

    /// Charges a call that is allowed and leaves `remaining`.
    #[doc(hidden)]
    #[inline]
    fn take_cost(&self, state: &mut Self::State, now: Time, cost: u64, remaining: u64) -> Charged {
        let delay = self.delay(state, now);
        let reset_after = self.charge(state, now, cost);
        Charged { standing: Standing { limit: self.limit(), remaining, reset_after }, delay }
    }

    /// The full decision behind [`Algorithm::check`]: allowed, denied or free of cost.
    #[doc(hidden)]
    #[inline]
    fn check_in_full(&self, state: &mut Self::State, now: Time, cost: u64, known: NotCharged) -> Decision {
        let remaining = known.remaining.unwrap_or_else(|| self.remaining(state, now));
        if !self.admits(state, now, cost, remaining) {
            let recorded = self.record_denied(state, now, cost);
            let remaining = if recorded { self.remaining(state, now) } else { remaining };
            return self.denied(state, now, cost, remaining);
        }
        if cost == 0 {
            return Decision::allow(self.standing_with(state, now, remaining), Span::ZERO);
        }
        self.take_cost(state, now, cost, remaining.saturating_sub(cost)).into()
    }
}

/// A key's debt. A full store evicts the key with the least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Debt {
    /// The used share of the limit, where 2^32 is all of it. A bucket in debt may exceed that.
    pub share: u64,
    /// The used cost: what a key without this debt could use again at once. At most the limit.
    pub used: u64,
    /// The time until the key is fully recovered, which breaks ties.
    pub recovers_in: Span,
}

impl Debt {
    /// Combines the debts of a key under several limits: the largest share, the largest cost and
    /// the longest time.
    #[must_use]
    pub fn max_of_each(self, other: Debt) -> Debt {
        Debt {
            share: self.share.max(other.share),
            used: self.used.max(other.used),
            recovers_in: self.recovers_in.max(other.recovers_in),
        }
    }
}

/// A call was allowed and charged.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charged {
    pub(crate) standing: Standing,
    pub(crate) delay: Span,
}

impl From<Charged> for Decision {
    #[inline]
    fn from(Charged { standing, delay }: Charged) -> Decision {
        Decision::allow(standing, delay)
    }
}

/// The fast path did not apply.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotCharged {
    /// What remains, if that was computed.
    pub remaining: Option<u64>,
}

impl NotCharged {
    /// Nothing was computed.
    pub const UNKNOWN: NotCharged = NotCharged { remaining: None };
}

/// Returns what remains after a call with a nonzero cost.
#[inline]
pub(crate) const fn remaining_after(remaining: u64, cost: u64) -> Result<u64, NotCharged> {
    // A cost of 0 wraps to the largest value: one comparison instead of two.
    if cost.wrapping_sub(1) >= remaining {
        Err(NotCharged { remaining: Some(remaining) })
    } else {
        Ok(remaining - cost)
    }
}

/// How callers of a limit can wait. Exhaustive on purpose: sister crates, which are released
/// together with this one, must handle every way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Not at all: a denied call has to be retried.
    Retry,
    /// By borrowing: a reservation is charged now, and acts once the bucket has refilled what it
    /// borrowed.
    Borrow,
    /// In the limit's own queue: each allowed call has a time slot.
    Queue,
    /// Behind earlier calls: a call is charged now, and acts once the calls before it are paid for.
    NextCallerPays,
}

/// The verbs that not every limit supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Return cost to a key.
    Refund,
    /// Charge as much as remains, up to a cost.
    Take,
    /// Charge now, act after a delay, cancel or settle later.
    Reserve,
    /// Reserve as much as remains, but at least some cost.
    ReserveAtLeast,
    /// Charge now, act after a delay, without a receipt.
    CheckWithin,
}
