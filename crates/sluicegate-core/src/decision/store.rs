//! Decisions as stores make and adjust them.
//!
//! An algorithm decides from one key's state. What it cannot know (a queue in front of the key, a
//! cached denial, a full store) is added by the store. Callers never need this
//! module.

use super::{Decision, FullPool, NO_LIMIT, Outcome, RetryAfter, Standing};
use crate::time::Span;

/// The decision for a call that is allowed without a limit: all of `limit` remains.
pub const fn unlimited(limit: u64) -> Decision {
    Decision::allow(Standing { limit, remaining: limit, reset_after: Span::ZERO }, Span::ZERO)
}

/// The denial by a store that has no room for the call. No limit denied it, so
/// [`Decision::denied_by`] is absent; [`Decision::full_pool`] says what is full.
pub const fn no_room(pool: FullPool, limit: u64, retry_after: RetryAfter) -> Decision {
    by_no_limit(limit, retry_after).by_limit(pool.position())
}

/// A denial by neither a limit nor a full pool.
pub const fn by_no_limit(limit: u64, retry_after: RetryAfter) -> Decision {
    let reset_after = match retry_after {
        RetryAfter::After(wait) => wait,
        RetryAfter::Never => Span::ZERO,
    };
    let standing = Standing { limit, remaining: 0, reset_after };
    Decision::deny(standing, retry_after).by_limit(NO_LIMIT)
}

/// The decision that another process reported: the delay of an allowed call, or the wait of a
/// denied one and the position of the limit that denied it.
pub const fn reported(standing: Standing, outcome: Result<Span, (RetryAfter, Option<u32>)>) -> Decision {
    match outcome {
        Ok(delay) => Decision::allow(standing, delay),
        Err((retry_after, denied_by)) => {
            let position = match denied_by {
                Some(position) => position,
                None => NO_LIMIT,
            };
            Decision::deny(standing, retry_after).by_limit(position)
        }
    }
}

/// Adjusts a decision to what only the store knows.
pub trait StoreDecision {
    /// The decision as it reads when it is reported `passed` later: the waits are shorter, but a
    /// denial keeps a wait of at least one tick. `remaining` is left as it was.
    fn aged_by(self, passed: Span) -> Decision;

    /// The denial of a call that must not overtake a queue. The decision was made as of the moment
    /// at which the queue is empty, `ahead` from now.
    fn behind_queue(self, ahead: Span) -> Decision;

    /// Sets [`Decision::denied_call`], if the call is denied.
    fn of_call(self, index: usize) -> Decision;

    /// Denies the call with this wait; the other fields stay.
    fn denied_for(self, wait: Span) -> Decision;

    /// Denies the call with [`RetryAfter::Never`]; the other fields stay.
    fn denied_forever(self) -> Decision;
}

/// At least one tick: a caller with a wait of 0 would retry immediately and be denied.
const TICK: Span = Span::from_micros(1);

impl StoreDecision for Decision {
    fn aged_by(self, passed: Span) -> Decision {
        let reset_after = self.standing.reset_after.saturating_sub(passed);
        let wait = match self.outcome {
            Outcome::Allowed => self.wait.saturating_sub(passed),
            Outcome::Denied => self.wait.saturating_sub(passed).max(TICK),
            Outcome::Never => self.wait,
        };
        Decision { standing: Standing { reset_after, ..self.standing }, wait, ..self }
    }

    fn behind_queue(self, ahead: Span) -> Decision {
        let Standing { limit, reset_after, .. } = self.standing;
        let standing = Standing { limit, remaining: 0, reset_after: reset_after.saturating_add(ahead) };
        let (outcome, wait) = match self.outcome {
            Outcome::Never => (Outcome::Never, Span::ZERO),
            Outcome::Denied => (Outcome::Denied, self.wait.saturating_add(ahead)),
            Outcome::Allowed => (Outcome::Denied, ahead.max(TICK)),
        };
        Decision { standing, outcome, denied_by: self.denied_by, wait }
    }

    fn of_call(self, index: usize) -> Decision {
        if self.allowed() {
            return self;
        }
        // Always fits: far fewer calls are made together.
        self.by_call(u32::try_from(index).unwrap_or(0))
    }

    fn denied_for(self, wait: Span) -> Decision {
        Decision { outcome: Outcome::Denied, wait, ..self }
    }

    fn denied_forever(self) -> Decision {
        Decision { outcome: Outcome::Never, wait: Span::ZERO, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Span = Span::from_micros(1_000_000);
    const STANDING: Standing = Standing { limit: 5, remaining: 2, reset_after: SECOND };

    #[test]
    fn a_reported_decision_has_the_reported_fields() {
        let allowed = reported(STANDING, Ok(TICK));
        assert_eq!((allowed.allowed(), allowed.delay(), allowed.remaining()), (true, TICK, 2));
        let denied = reported(STANDING, Err((RetryAfter::After(SECOND), Some(3)))).of_call(2);
        assert_eq!((denied.retry_after(), denied.delay()), (Some(RetryAfter::After(SECOND)), Span::ZERO));
        assert_eq!((denied.denied_by(), denied.denied_call()), (Some(3), Some(2)));
        assert_eq!(reported(STANDING, Err((RetryAfter::Never, None))).denied_by(), None);
    }

    #[test]
    fn an_aged_denial_keeps_a_wait_of_one_tick() {
        let denial = Decision::deny(STANDING, RetryAfter::After(TICK)).aged_by(SECOND);
        assert_eq!(denial.retry_after(), Some(RetryAfter::After(TICK)));
        assert_eq!((denial.remaining(), denial.reset_after()), (2, Span::ZERO));
    }

    #[test]
    fn behind_a_queue_nothing_remains_and_no_wait_is_zero() {
        let denial = Decision::allow(STANDING, Span::ZERO).behind_queue(Span::ZERO);
        assert_eq!((denial.remaining(), denial.retry_after()), (0, Some(RetryAfter::After(TICK))));
        let denial = Decision::deny(STANDING, RetryAfter::After(TICK)).behind_queue(SECOND);
        assert_eq!(denial.retry_after(), Some(RetryAfter::After(SECOND.saturating_add(TICK))));
    }

    #[test]
    fn no_limit_denied_a_call_for_which_there_was_no_room() {
        for pool in FullPool::ALL {
            let denial = no_room(pool, 5, RetryAfter::After(SECOND)).of_call(3);
            assert_eq!((denial.denied_by(), denial.denied_call(), denial.remaining()), (None, Some(3), 0));
            assert_eq!(denial.full_pool(), Some(pool));
        }
        let denial = by_no_limit(5, RetryAfter::Never);
        assert_eq!((denial.denied_by(), denial.full_pool()), (None, None));
        assert_eq!(Decision::deny(STANDING, RetryAfter::Never).full_pool(), None);
    }

    #[test]
    fn a_denial_names_its_call_and_limit() {
        let denial = Decision::deny(STANDING, RetryAfter::Never);
        assert_eq!((denial.denied_by(), denial.denied_call()), (Some(0), Some(0)));
        let denial = denial.of_call(63).by_limit(7);
        assert_eq!((denial.denied_by(), denial.denied_call()), (Some(7), Some(63)));
        let allowed = Decision::allow(STANDING, Span::ZERO);
        assert_eq!((allowed.of_call(3), allowed.denied_call()), (allowed, None));
    }
}
