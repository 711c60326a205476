//! Decisions as stores make and adjust them.
//!
//! An algorithm decides from one key's state. What it cannot know (a queue in front of the key, a
//! cached denial, a full store) is added by the store. Callers never need this
//! module.

use super::{Decision, NO_LIMIT, Outcome, RetryAfter, Standing};
use crate::time::Span;

/// The decision for a call that is allowed without a limit: all of `limit` remains.
pub const fn unlimited(limit: u32) -> Decision {
    Decision::allow(Standing { limit, remaining: limit, reset_after: Span::ZERO }, Span::ZERO)
}

/// The denial by a store that has no room for another key. No limit denied the call, so
/// [`Decision::denied_by`] is absent.
pub const fn no_room(limit: u32, retry_after: RetryAfter) -> Decision {
    let reset_after = match retry_after {
        RetryAfter::After(wait) => wait,
        RetryAfter::Never => Span::ZERO,
    };
    let standing = Standing { limit, remaining: 0, reset_after };
    Decision::deny(standing, retry_after).by_limit(NO_LIMIT)
}

/// Adjusts a decision to what only the store knows.
pub trait StoreDecision {
    /// The decision as it reads when it is reported `passed` later: the waits are shorter, but a
    /// denial keeps a wait of at least one tick. `remaining` is left as it was.
    fn aged_by(self, passed: Span) -> Decision;

    /// The denial of a call that must not overtake a queue. The decision was made as of the moment
    /// at which the queue is empty, `ahead` from now.
    fn behind_queue(self, ahead: Span) -> Decision;

    /// Moves [`Decision::denied_by`] behind that many limits that precede this list.
    fn offset_denied_by(self, limits: u32) -> Decision;

    /// Denies the call with this wait; the other fields stay.
    fn denied_for(self, wait: Span) -> Decision;

    /// Denies the call with [`RetryAfter::Never`]; the other fields stay.
    fn denied_forever(self) -> Decision;
}

/// At least one tick: a caller told to wait 0 would retry immediately and be denied.
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

    fn offset_denied_by(self, limits: u32) -> Decision {
        let denied_by =
            if self.denied_by == NO_LIMIT { NO_LIMIT } else { self.denied_by.saturating_add(limits) };
        Decision { denied_by, ..self }
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
        let denial = no_room(5, RetryAfter::After(SECOND)).offset_denied_by(3);
        assert_eq!((denial.denied_by(), denial.remaining()), (None, 0));
        assert_eq!(Decision::deny(STANDING, RetryAfter::Never).offset_denied_by(3).denied_by(), Some(3));
    }
}
