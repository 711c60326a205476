//! The answer to "may this happen now?". A "no" is an answer, never an error.

use crate::time::Span;
use core::fmt;

/// What a check, and most other verbs, answer.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "a call that is denied must not happen: ask `allowed()`"]
pub struct Decision {
    standing: Standing,
    verdict: Verdict,
    /// Which limit of a list said no.
    denied_by: u32,
    /// When allowed the delay, when denied the wait.
    wait: Span,
}

/// How a key stands under a limit at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The most that an idle key could take at once.
    pub limit: u32,
    /// The cost that would still be allowed now. Rounded down.
    pub remaining: u32,
    /// How long until the key is as good as new if nobody else came. Rounded up.
    pub reset_after: Span,
}

/// The place of no limit: no list is that long.
const NO_LIMIT: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Allowed,
    Denied,
    Never,
}

/// The shortest wait after which a denied call would be allowed. `Never` is the longest wait of all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RetryAfter {
    /// After this long, exactly: one tick sooner is too soon.
    After(Span),
    /// The cost is above the limit: no wait helps.
    Never,
}

impl fmt::Debug for Decision {
    /// As a caller sees it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("allowed", &self.allowed())
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset_after", &self.reset_after())
            .field("delay", &self.delay())
            .field("denied_by", &self.denied_by())
            .finish()
    }
}

impl Decision {
    /// Whether the call may happen.
    pub const fn allowed(&self) -> bool {
        matches!(self.verdict, Verdict::Allowed)
    }

    /// The most that an idle key could take at once.
    pub const fn limit(&self) -> u32 {
        self.standing.limit
    }

    /// The cost that would still be allowed now, after this call.
    pub const fn remaining(&self) -> u32 {
        self.standing.remaining
    }

    /// How long until the key is as good as new if nobody else came.
    pub const fn reset_after(&self) -> Span {
        self.standing.reset_after
    }

    /// When denied: how long until the same call would be allowed. `None` when allowed.
    pub const fn retry_after(&self) -> Option<RetryAfter> {
        match self.verdict {
            Verdict::Allowed => None,
            Verdict::Denied => Some(RetryAfter::After(self.wait)),
            Verdict::Never => Some(RetryAfter::Never),
        }
    }

    /// How long the caller has to wait before acting on an allowed call; zero when denied, and zero except for
    /// pacing, waiting and reserving.
    pub const fn delay(&self) -> Span {
        if self.allowed() { self.wait } else { Span::ZERO }
    }

    /// When denied: the place in the list of the limit that said no, counted from 0. `None` when allowed, and when it
    /// was no limit but a store without room for another key.
    pub const fn denied_by(&self) -> Option<u32> {
        if self.allowed() || self.denied_by == NO_LIMIT { None } else { Some(self.denied_by) }
    }

    /// The same answer, told when so much time has passed since: there is less to wait, but at least one tick while a denial holds.
    /// What remained is not known anew.
    pub const fn aged_by(self, passed: Span) -> Decision {
        let standing = Standing { reset_after: self.standing.reset_after.less(passed), ..self.standing };
        let wait = match self.verdict {
            Verdict::Denied if self.wait.as_micros() <= passed.as_micros() => Span::from_micros(1),
            Verdict::Denied | Verdict::Allowed => self.wait.less(passed),
            Verdict::Never => self.wait,
        };
        Decision { standing, wait, ..self }
    }

    /// The same answer, told so long before the time it is for, while nothing is allowed: others are waiting in line until then.
    pub const fn behind_queue(self, ahead: Span) -> Decision {
        let Standing { limit, reset_after, .. } = self.standing;
        let standing = Standing { limit, remaining: 0, reset_after: reset_after.and(ahead) };
        let (verdict, wait) = match self.verdict {
            Verdict::Never => (Verdict::Never, Span::ZERO),
            Verdict::Denied => (Verdict::Denied, self.wait.and(ahead)),
            // At least one tick: whoever is told 0 would come back at once and fail.
            Verdict::Allowed if ahead.as_micros() == 0 => (Verdict::Denied, Span::from_micros(1)),
            Verdict::Allowed => (Verdict::Denied, ahead),
        };
        Decision { standing, verdict, denied_by: self.denied_by, wait }
    }

    /// The same denial, where so many other limits are named before this one's.
    pub const fn offset_denied_by(self, limits: u32) -> Decision {
        let denied_by =
            if self.denied_by == NO_LIMIT { NO_LIMIT } else { self.denied_by.saturating_add(limits) };
        Decision { denied_by, ..self }
    }

    /// How the key stands, and that it is denied for so long.
    pub const fn denied_for(self, wait: Span) -> Decision {
        Decision { verdict: Verdict::Denied, wait, ..self }
    }

    /// How the key stands, and that it is denied for ever.
    pub const fn denied_forever(self) -> Decision {
        Decision { verdict: Verdict::Never, wait: Span::ZERO, ..self }
    }

    /// The answer to a call that is let pass though nobody could decide on it: all of the limit remains.
    pub const fn unlimited(limit: u32) -> Decision {
        Decision::yes(Standing { limit, remaining: limit, reset_after: Span::ZERO }, Span::ZERO)
    }

    /// The answer of a store that has no room for another key: nothing remains, come back after the wait.
    pub const fn no_room(limit: u32, retry_after: RetryAfter) -> Decision {
        let reset_after = match retry_after {
            RetryAfter::After(wait) => wait,
            RetryAfter::Never => Span::ZERO,
        };
        Decision::no(Standing { limit, remaining: 0, reset_after }, retry_after).by(NO_LIMIT)
    }

    #[inline]
    pub(crate) const fn yes(standing: Standing, delay: Span) -> Decision {
        Decision { standing, verdict: Verdict::Allowed, denied_by: 0, wait: delay }
    }

    #[inline]
    pub(crate) const fn no(standing: Standing, retry_after: RetryAfter) -> Decision {
        let (verdict, wait) = match retry_after {
            RetryAfter::After(wait) => (Verdict::Denied, wait),
            RetryAfter::Never => (Verdict::Never, Span::ZERO),
        };
        Decision { standing, verdict, denied_by: 0, wait }
    }

    /// The same denial, by the limit at that place of a list.
    pub(crate) const fn by(self, place: u32) -> Decision {
        Decision { denied_by: place, ..self }
    }
}
