//! The answer, as protocols write it.

use super::judge::Told;
use sluicegate::core::bounds::COUNT_MAX;
use sluicegate::{RetryAfter, Span};
use sluicegate_redis::Source;
use std::sync::{Arc, LazyLock};

/// A decision with everything that a caller is told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether the call may happen.
    pub allowed: bool,
    /// The most that an idle key could take at once.
    pub limit: u32,
    /// The cost that would still be allowed now.
    pub remaining: u32,
    /// How long until the same call would be allowed. `None` when it is; a shadow rule tells it all the same.
    pub retry_after: Option<RetryAfter>,
    /// How long until the key is as good as new.
    pub reset_after: Span,
    /// How long to wait before acting.
    pub delay: Span,
    /// The canonical text of the limit that says no.
    pub denied_by: Option<Arc<str>>,
    /// Why it says no.
    pub reason: Option<Reason>,
    /// Who answered instead of a shared store that is away; `None` when nobody had to.
    pub instead: Option<Source>,
}

/// Why a call was denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The limit is used up for now.
    Limit,
    /// The cost is above the limit: no wait helps.
    CostExceedsLimit,
    /// The limit has not started yet.
    NotStarted,
    /// The key is blocked by its rule.
    Blocked,
    /// The store holds as many keys as it may, and is to deny new ones.
    NoRoom,
    /// The shared store is away, and the rule is to deny then.
    StoreFailed,
}

impl Reason {
    /// As it is written in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Limit => "limit",
            Reason::CostExceedsLimit => "cost_exceeds_limit",
            Reason::NotStarted => "not_started",
            Reason::Blocked => "blocked",
            Reason::NoRoom => "no_room",
            Reason::StoreFailed => "store_failed",
        }
    }
}

static BLOCKED: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("blocked"));

impl Verdict {
    /// What a decision says; `texts` are the canonical texts of the limits it was made under.
    pub(super) fn of(told: &Told, texts: &[Arc<str>], starts_later: impl Fn(usize) -> bool) -> Verdict {
        let Told { decision, instead } = told;
        let place = decision.denied_by().and_then(|place| usize::try_from(place).ok());
        let reason = decision.retry_after().map(|wait| match (place, wait) {
            _ if *instead == Some(Source::Denied) => Reason::StoreFailed,
            (None, _) => Reason::NoRoom,
            (Some(place), _) if starts_later(place) => Reason::NotStarted,
            (Some(_), RetryAfter::Never) => Reason::CostExceedsLimit,
            (Some(_), RetryAfter::After(_)) => Reason::Limit,
        });
        Verdict {
            allowed: decision.allowed(),
            limit: decision.limit(),
            remaining: decision.remaining(),
            retry_after: decision.retry_after(),
            reset_after: decision.reset_after(),
            delay: decision.delay(),
            denied_by: place.and_then(|place| texts.get(place).cloned()),
            reason,
            instead: *instead,
        }
    }

    /// The answer to a key without limits.
    pub(super) fn unlimited() -> Verdict {
        Verdict {
            allowed: true,
            limit: COUNT_MAX,
            remaining: COUNT_MAX,
            retry_after: None,
            reset_after: Span::ZERO,
            delay: Span::ZERO,
            denied_by: None,
            reason: None,
            instead: None,
        }
    }

    /// The answer to a key that is never let in.
    pub(super) fn blocked() -> Verdict {
        Verdict {
            allowed: false,
            limit: 0,
            remaining: 0,
            retry_after: Some(RetryAfter::Never),
            denied_by: Some(Arc::clone(&BLOCKED)),
            reason: Some(Reason::Blocked),
            ..Verdict::unlimited()
        }
    }

    /// Whether the limits said no, even if a shadow rule lets the call pass.
    pub fn denied(&self) -> bool {
        self.reason.is_some()
    }
}
