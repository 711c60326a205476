//! The answer to "may this happen now?". A "no" is an answer, never an error.

use crate::time::Span;

/// What a check, and most other verbs, answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// How the key stands after this call.
    pub standing: Standing,
    /// Yes or no, and when to act or to come back.
    pub outcome: Outcome,
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

/// Yes or no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Yes. The caller waits `delay` before acting: zero but for pacing, waiting and reserving.
    Allowed {
        /// How long to wait before acting. Rounded up.
        delay: Span,
    },
    /// No, and nothing was charged.
    Denied(Denial),
}

/// Why and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denial {
    /// The shortest wait after which the same call would be allowed if nobody else came.
    pub retry_after: RetryAfter,
    /// Which limit of a list said no, counted from 0.
    pub denied_by: usize,
}

/// The shortest wait after which a denied call would be allowed. `Never` is the longest wait of all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RetryAfter {
    /// After this long, exactly: one tick sooner is too soon.
    After(Span),
    /// The cost is above the limit: no wait helps.
    Never,
}

impl Decision {
    /// Whether the call may happen.
    pub const fn allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed { .. })
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
        match self.outcome {
            Outcome::Allowed { .. } => None,
            Outcome::Denied(denial) => Some(denial.retry_after),
        }
    }

    /// How long the caller has to wait before acting on an allowed call; zero when denied.
    pub const fn delay(&self) -> Span {
        match self.outcome {
            Outcome::Allowed { delay } => delay,
            Outcome::Denied(_) => Span::ZERO,
        }
    }

    /// When denied: the place in the list of the limit that said no.
    pub const fn denied_by(&self) -> Option<usize> {
        match self.outcome {
            Outcome::Allowed { .. } => None,
            Outcome::Denied(denial) => Some(denial.denied_by),
        }
    }

    pub(crate) const fn yes(standing: Standing, delay: Span) -> Decision {
        Decision { standing, outcome: Outcome::Allowed { delay } }
    }

    pub(crate) const fn no(standing: Standing, retry_after: RetryAfter) -> Decision {
        Decision { standing, outcome: Outcome::Denied(Denial { retry_after, denied_by: 0 }) }
    }
}
