//! What callers do with one limit, written once for all algorithms.

use crate::algorithm::{Algorithm, Verb, Waiting};
use crate::bounds::CENTURY;
use crate::decision::{Decision, RetryAfter, Standing};
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{Span, Time};
use core::fmt;

/// The other verbs on one limit and one key's state; `check` is the algorithm's own.
pub trait Verbs: Algorithm {
    /// Would a call of this cost be allowed now? Nothing is charged: `remaining` and `reset_after` are those of now.
    fn peek(&self, state: &Self::State, now: Time, cost: u32) -> Decision {
        let remaining = self.remaining(state, now);
        if !self.admits(state, now, cost, remaining) {
            return self.denied(state, now, cost, remaining);
        }
        let delay = if cost > 0 { self.delay(state, now) } else { Span::ZERO };
        Decision::allow(self.standing_with(state, now, remaining), delay)
    }

    /// How the key stands now.
    fn standing(&self, state: &Self::State, now: Time) -> Standing {
        self.standing_with(state, now, self.remaining(state, now))
    }

    /// How a reservation would be answered, without charging it: the delay.
    ///
    /// # Errors
    /// When it would be denied: when to come back.
    fn reserve_wait(
        &self,
        state: &Self::State,
        now: Time,
        cost: u32,
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

    /// Charges `cost` now, to act after the answer's delay, which is at most `max_wait`: a reservation without a receipt.
    fn check_within(&self, state: &mut Self::State, now: Time, cost: u32, max_wait: Span) -> Decision {
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

    /// Charges what was really used against what a receipt holds: the rest is given back as by a cancel, an
    /// excess becomes debt. What was given back, if anything.
    fn settle_charge(
        &self,
        state: &mut Self::State,
        times: Times,
        charge: &Charge,
        used: u32,
    ) -> Option<Rollback> {
        if used > charge.cost {
            self.charge(state, times.now, used - charge.cost);
            return None;
        }
        self.roll_back(state, times, charge, charge.cost - used)
    }

    /// An error unless the limit offers the verb.
    ///
    /// # Errors
    /// When the limit does not offer this verb.
    fn require(&self, verb: Verb) -> Result<(), Unsupported> {
        if self.supports(verb) { Ok(()) } else { Err(Unsupported { verb, waiting: self.waiting() }) }
    }

    /// How the key stands, when what remains is known.
    #[doc(hidden)]
    #[inline]
    fn standing_with(&self, state: &Self::State, now: Time, remaining: u32) -> Standing {
        Standing { limit: self.limit(), remaining, reset_after: self.reset_after(state, now) }
    }

    /// The denial of a cost that is not allowed now.
    #[doc(hidden)]
    #[inline]
    fn denied(&self, state: &Self::State, now: Time, cost: u32, remaining: u32) -> Decision {
        let retry_after = if self.never_admits(cost) {
            RetryAfter::Never
        } else {
            RetryAfter::After(self.retry_after(state, now, cost))
        };
        Decision::deny(self.standing_with(state, now, remaining), retry_after)
    }
}

impl<A: Algorithm + ?Sized> Verbs for A {}

/// The limit does not offer the verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsupported {
    /// What was asked for.
    pub verb: Verb,
    /// How callers of the limit wait, which tells what kind it is.
    pub waiting: Waiting,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.verb, self.waiting) {
            (Verb::Refund, Waiting::NextCallerPays) => {
                "refund is not offered by smooth with warmup=, where what a permit has cost cannot be told afterwards; \
                 leave warmup= out to give permits back"
            }
            (Verb::Take, Waiting::NextCallerPays) => {
                "take is not offered by smooth, where any cost passes when its time has come; use check"
            }
            (Verb::Reserve, Waiting::NextCallerPays) => {
                "reserve is not offered by smooth, where nothing that was charged can be cancelled; use check with a \
                 longest wait, which tells the delay"
            }
            (Verb::Refund, _) => {
                "a pacer's slots are in order and cannot be refunded; reserve and cancel the receipt instead"
            }
            (Verb::Take, _) => "take is not offered with count=all, where even a denied call counts; use check",
            (Verb::Reserve, _) => {
                "reserve is not offered with count=all, where even a denied call counts; use check"
            }
            (Verb::CheckWithin, _) => {
                "a longest wait is not offered with count=all, where even a denied call counts; use check without it"
            }
        })
    }
}

impl core::error::Error for Unsupported {}
