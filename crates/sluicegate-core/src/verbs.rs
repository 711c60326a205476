//! The verbs on one limit, written once for all algorithms.

use crate::algorithm::{Algorithm, Verb, Waiting};
use crate::bounds::CENTURY;
use crate::decision::{Decision, RetryAfter, Standing};
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{Span, Time};
use crate::usage::Usage;
use core::fmt;

/// The verbs on one limit and one key's state, besides [`Algorithm::check`].
pub trait Verbs: Algorithm {
    /// Decides whether a call would be allowed now. Charges nothing, so `remaining` and
    /// `reset_after` are the current ones.
    fn peek(&self, state: &Self::State, now: Time, cost: u64) -> Decision {
        let remaining = self.remaining(state, now);
        if !self.admits(state, now, cost, remaining) {
            return self.denied(state, now, cost, remaining);
        }
        let delay = if cost > 0 { self.delay(state, now) } else { Span::ZERO };
        Decision::allow(self.standing_with(state, now, remaining), delay)
    }

    /// Returns how the key stands now.
    fn standing(&self, state: &Self::State, now: Time) -> Standing {
        self.standing_with(state, now, self.remaining(state, now))
    }

    /// Returns what the key has used. Its window is on the clock of `now`.
    fn usage(&self, state: &Self::State, now: Time) -> Usage {
        let Standing { limit, remaining, reset_after } = self.standing(state, now);
        Usage { limit, used: self.used(state, now), remaining, reset_after, window: self.window(state, now) }
    }

    /// Returns the delay of a reservation, without charging it.
    ///
    /// # Errors
    /// If the reservation would be denied: when to retry.
    fn reserve_wait(
        &self,
        state: &Self::State,
        now: Time,
        cost: u64,
        max_wait: Span,
    ) -> Result<Span, RetryAfter> {
        if cost == 0 {
            return Ok(Span::ZERO);
        }
        if self.never_admits(cost) {
            return Err(RetryAfter::Never);
        }
        let max_wait = max_wait.min(CENTURY);
        let is_allowed = self.admits(state, now, cost, self.remaining(state, now));
        let until_allowed = if is_allowed { Span::ZERO } else { self.retry_after(state, now, cost) };
        match self.waiting() {
            Waiting::Borrow | Waiting::NextCallerPays if until_allowed <= max_wait => Ok(until_allowed),
            Waiting::Borrow | Waiting::NextCallerPays => {
                Err(RetryAfter::After(until_allowed.saturating_sub(max_wait)))
            }
            Waiting::Queue => {
                let delay = self.delay(state, now);
                let too_long = until_allowed.max(delay.saturating_sub(max_wait));
                if too_long == Span::ZERO { Ok(delay) } else { Err(RetryAfter::After(too_long)) }
            }
            Waiting::Retry if until_allowed == Span::ZERO => Ok(Span::ZERO),
            Waiting::Retry => Err(RetryAfter::After(until_allowed)),
        }
    }

    /// Charges `cost` now, if the caller can act within `max_wait`, after the decision's delay.
    /// This is a reservation without a receipt.
    fn check_within(&self, state: &mut Self::State, now: Time, cost: u64, max_wait: Span) -> Decision {
        match self.reserve_wait(state, now, cost, max_wait) {
            Err(retry_after) => Decision::deny(self.standing(state, now), retry_after),
            Ok(delay) => {
                if cost > 0 {
                    self.charge(state, now, cost);
                }
                Decision::allow(self.standing(state, now), delay)
            }
        }
    }

    /// Corrects a charge to what was actually used: an unused rest is rolled back, as by a cancel,
    /// and an excess becomes debt. Returns what was rolled back, if anything.
    fn settle_charge(
        &self,
        state: &mut Self::State,
        times: Times,
        charge: &Charge,
        used: u64,
    ) -> Option<Rollback> {
        if used > charge.cost {
            self.charge(state, times.now, used - charge.cost);
            return None;
        }
        self.roll_back(state, times, charge, charge.cost - used)
    }

    /// Checks that the limit supports a verb.
    ///
    /// # Errors
    /// If it does not.
    fn require(&self, verb: Verb) -> Result<(), Unsupported> {
        if self.supports(verb) { Ok(()) } else { Err(Unsupported { verb, waiting: self.waiting() }) }
    }

    /// Returns how the key stands, given what remains.
    #[doc(hidden)]
    #[inline]
    fn standing_with(&self, state: &Self::State, now: Time, remaining: u64) -> Standing {
        Standing { limit: self.limit(), remaining, reset_after: self.reset_after(state, now) }
    }

    /// Returns the denial of a cost that is not allowed now.
    #[doc(hidden)]
    #[inline]
    fn denied(&self, state: &Self::State, now: Time, cost: u64, remaining: u64) -> Decision {
        let retry_after = if self.never_admits(cost) {
            RetryAfter::Never
        } else {
            RetryAfter::After(self.retry_after(state, now, cost))
        };
        Decision::deny(self.standing_with(state, now, remaining), retry_after)
    }
}

impl<A: Algorithm + ?Sized> Verbs for A {}

/// The limit does not support the verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsupported {
    /// The verb.
    pub verb: Verb,
    /// How callers of the limit wait, which identifies its kind.
    pub waiting: Waiting,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.verb, self.waiting) {
            (Verb::Refund, Waiting::NextCallerPays) => {
                "smooth with warmup= does not support refund, since the price of a permit is not known afterwards; \
                 leave warmup= out to refund permits"
            }
            (Verb::Take, Waiting::NextCallerPays) => {
                "smooth does not support take, since any cost is allowed once its time has come; use check"
            }
            (Verb::Reserve | Verb::ReserveAtLeast, Waiting::NextCallerPays) => {
                "smooth does not support reserve, since its charges cannot be cancelled; use check with a \
                 maximum wait, which returns the delay"
            }
            (Verb::Refund, _) => {
                "pacer does not support refund, since its time slots are in order; reserve, and cancel the receipt"
            }
            (Verb::ReserveAtLeast, Waiting::Queue) => {
                "pacer does not support at_least, since its calls wait for their time slots; reserve the whole cost"
            }
            (Verb::Take, _) => "count=all does not support take, since denied calls count too; use check",
            (Verb::Reserve | Verb::ReserveAtLeast, _) => {
                "count=all does not support reserve, since denied calls count too; use check"
            }
            (Verb::CheckWithin, _) => {
                "count=all does not support a maximum wait, since denied calls count too; use check without one"
            }
        })
    }
}

impl core::error::Error for Unsupported {}
