//! An answer combined with its rule, ready for a protocol to write.

use super::rule::{KeyLimits, Rule};
use sluicegate::backend::{Answer, Source};
use sluicegate::{FullPool, RetryAfter, Span, Time};
use std::borrow::Cow;

/// The answer to a call, combined with its rule. Protocols write its fields.
#[derive(Clone, Copy)]
pub struct Decided<'r> {
    answer: Answer,
    /// The rule of the call or, of several calls, of the one that was denied.
    rule: Option<&'r Rule>,
    /// What applies to the key of that call.
    key_limits: KeyLimits<'r>,
    at: Time,
    /// A shadow rule decides and counts, but always allows.
    shadow: bool,
}

/// Why a call was denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The limit is exhausted for now.
    Limit,
    /// The cost exceeds the limit: waiting does not help.
    CostExceedsLimit,
    /// The limit's `start` is in the future.
    NotStarted,
    /// The rule blocks the key.
    Blocked,
    /// A pool of the store is full: [`Decided::full_pool`].
    NoRoom,
    /// The shared store is unavailable, and the rule fails closed.
    StoreFailed,
}

impl Reason {
    /// The reason as responses write it.
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

impl<'r> Decided<'r> {
    #[inline]
    pub(super) fn new(
        answer: Answer,
        (rule, key_limits): (&'r Rule, KeyLimits<'r>),
        at: Time,
        shadow: bool,
    ) -> Decided<'r> {
        Decided { answer, rule: Some(rule), key_limits, at, shadow }
    }

    /// The answer to several calls that none of their limits denied.
    pub(super) fn of_calls(answer: Answer, at: Time) -> Decided<'r> {
        Decided { answer, rule: None, key_limits: KeyLimits::Unlimited, at, shadow: false }
    }

    /// Returns `true` if the call is allowed. A shadow rule allows every call.
    #[inline]
    pub fn allowed(&self) -> bool {
        self.answer.allowed() || self.shadow
    }

    /// Returns `true` if the limits denied the call, even if a shadow rule allows it.
    #[inline]
    pub fn denied(&self) -> bool {
        !self.answer.allowed()
    }

    /// The answer of the limits, before shadow mode.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The highest cost admitted at once for an idle key.
    pub fn limit(&self) -> u64 {
        self.answer.limit()
    }

    /// The cost that would still be allowed.
    pub fn remaining(&self) -> u64 {
        self.answer.remaining()
    }

    /// If the limits denied the call: how long until it would be allowed.
    pub fn retry_after(&self) -> Option<RetryAfter> {
        self.answer.retry_after()
    }

    /// How long until the key is fully recovered.
    pub fn reset_after(&self) -> Span {
        self.answer.reset_after()
    }

    /// How long to wait before acting.
    pub fn delay(&self) -> Span {
        self.answer.delay()
    }

    /// The canonical text of the limit that denied the call.
    pub fn denied_by(&self) -> Option<&'r str> {
        match self.key_limits {
            KeyLimits::Blocked => Some("blocked"),
            KeyLimits::Unlimited => None,
            KeyLimits::Limits(limits) => limits.text(self.denied_at()?),
        }
    }

    /// The position, in the rule's list, of the limit that denied the call.
    pub fn denied_at(&self) -> Option<usize> {
        usize::try_from(self.answer.decision().denied_by()?).ok()
    }

    /// How requests name the rule that denied the call.
    pub fn denied_rule(&self) -> Option<Cow<'r, str>> {
        self.denied_call()?;
        self.rule.map(Rule::text)
    }

    /// The index, in the request, of the call that the limits denied.
    pub fn denied_call(&self) -> Option<usize> {
        denied_call(&self.answer)
    }

    /// What the store had no room for, if that is why the call was denied.
    pub fn full_pool(&self) -> Option<FullPool> {
        self.answer.decision().full_pool()
    }

    /// Why the limits denied the call.
    pub fn reason(&self) -> Option<Reason> {
        let retry_after = self.answer.retry_after()?;
        Some(match (self.key_limits, self.denied_at(), retry_after) {
            (KeyLimits::Blocked, ..) => Reason::Blocked,
            _ if self.answer.source() == Source::Denied => Reason::StoreFailed,
            (_, None, _) => Reason::NoRoom,
            (KeyLimits::Limits(limits), Some(index), _) if limits.starts_after(index, self.at) => {
                Reason::NotStarted
            }
            (.., RetryAfter::Never) => Reason::CostExceedsLimit,
            (.., RetryAfter::After(_)) => Reason::Limit,
        })
    }

    /// The source that decided in place of the shared store, if the store was unavailable.
    pub fn fallback(&self) -> Option<Source> {
        Some(self.answer.source()).filter(|source| source.is_fallback())
    }
}

/// The index of the call that was denied.
pub(super) fn denied_call(answer: &Answer) -> Option<usize> {
    usize::try_from(answer.decision().denied_call()?).ok()
}
