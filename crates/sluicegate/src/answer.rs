//! A decision and its source.

use sluicegate_core::{Decision, Denied, RetryAfter, Span};

/// A decision and its source: the answer of every [`Backend`](crate::backend::Backend).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a denied call must not happen: check `allowed()`"]
pub struct Answer {
    decision: Decision,
    source: Source,
}

/// Where a decision was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Source {
    /// This process's memory, where the keys are stored.
    Memory,
    /// The shared store: the decision counts for every process.
    Store,
    /// This process, from a recent denial by the store that still holds.
    Remembered,
    /// This process's memory, with a share of the limit, because the store is unavailable.
    Local,
    /// Nowhere: the store is unavailable, and the limiter fails open.
    Allowed,
    /// Nowhere: the store is unavailable, and the limiter fails closed.
    Denied,
}

impl Source {
    /// Returns `true` if the store was unavailable, so that the decision was made without it.
    pub const fn is_fallback(self) -> bool {
        matches!(self, Source::Local | Source::Allowed | Source::Denied)
    }

    /// The source as replies and metrics write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Source::Memory => "memory",
            Source::Store => "store",
            Source::Remembered => "remembered",
            Source::Local => "local",
            Source::Allowed => "allowed",
            Source::Denied => "denied",
        }
    }
}

impl Answer {
    /// A decision and its source.
    #[inline]
    pub const fn new(decision: Decision, source: Source) -> Answer {
        Answer { decision, source }
    }

    /// The decision.
    #[inline]
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Where the decision was made.
    #[inline]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Returns `true` if the call may happen.
    #[inline]
    pub const fn allowed(&self) -> bool {
        self.decision.allowed()
    }

    /// Returns the answer if the call is allowed, or else a [`Denied`], for use with `?`.
    ///
    /// # Errors
    /// If the call is denied.
    pub fn into_result(self) -> Result<Answer, Denied> {
        self.decision.into_result().map(|_| self)
    }

    /// The highest cost admitted at once for an idle key.
    pub const fn limit(&self) -> u64 {
        self.decision.limit()
    }

    /// The cost that would still be allowed now.
    pub const fn remaining(&self) -> u64 {
        self.decision.remaining()
    }

    /// If denied: how long until the same call would be allowed.
    pub const fn retry_after(&self) -> Option<RetryAfter> {
        self.decision.retry_after()
    }

    /// How long until the key is fully recovered.
    pub const fn reset_after(&self) -> Span {
        self.decision.reset_after()
    }

    /// How long to wait before acting on an allowed call.
    pub const fn delay(&self) -> Span {
        self.decision.delay()
    }
}

/// A decision made in memory.
impl From<Decision> for Answer {
    #[inline]
    fn from(decision: Decision) -> Answer {
        Answer::new(decision, Source::Memory)
    }
}
