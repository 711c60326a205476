//! A decision, and who made it.

use sluicegate::{Decision, RetryAfter, Span};

/// A decision and where it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a call that is denied must not happen: ask `allowed()`"]
pub struct Answer {
    decision: Decision,
    source: Source,
}

/// Who made a decision.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// The store: it counts for everybody.
    Store,
    /// A denial of a moment ago, which still holds: see [`remember_denials`](crate::RedisStoreBuilder::remember_denials), and for
    /// those who wait in line what the first of them was told.
    Remembered,
    /// This process's memory, with a share of the limit: the store is away.
    Local,
    /// Nobody: the store is away, and the limiter is to allow then.
    Allowed,
    /// Nobody: the store is away, and the limiter is to deny then.
    Denied,
}

impl Source {
    /// Whether the store is away, so that somebody else had to answer.
    pub const fn is_fallback(self) -> bool {
        matches!(self, Source::Local | Source::Allowed | Source::Denied)
    }

    /// As it is written in answers and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Source::Store => "store",
            Source::Remembered => "remembered",
            Source::Local => "local",
            Source::Allowed => "allowed",
            Source::Denied => "denied",
        }
    }
}

impl Answer {
    pub(crate) const fn new(decision: Decision, source: Source) -> Answer {
        Answer { decision, source }
    }

    pub(crate) const fn told_later(self, passed: Span) -> Answer {
        Answer { decision: self.decision.told_later(passed), source: self.source }
    }

    /// The decision.
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Who made it.
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Whether the call may happen.
    pub const fn allowed(&self) -> bool {
        self.decision.allowed()
    }

    /// The cost that would still be allowed.
    pub const fn remaining(&self) -> u32 {
        self.decision.remaining()
    }

    /// When denied: how long until the same call would be allowed.
    pub const fn retry_after(&self) -> Option<RetryAfter> {
        self.decision.retry_after()
    }

    /// How long to wait before acting on an allowed call.
    pub const fn delay(&self) -> Span {
        self.decision.delay()
    }
}
