//! A decision as JSON.

use crate::engine::{Decided, LimitUsage, Reason, Source};
use crate::wire::unix_millis_up;
use serde::Serialize;
use sluicegate::{FullPool, RetryAfter, Time};
use std::borrow::Cow;

/// The fields of a decision: always the first nine. Milliseconds are rounded up.
#[derive(Serialize)]
pub(in crate::http) struct Fields<'a> {
    allowed: bool,
    limit: u64,
    remaining: u64,
    pub(in crate::http) retry_after_ms: Option<u64>,
    reset_after_ms: u64,
    delay_ms: u64,
    pub(in crate::http) denied_by: Option<&'a str>,
    reason: Option<&'static str>,
    denied: Option<DeniedBy<'a>>,
    /// What the store had no room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) full_pool: Option<&'static str>,
    /// What decided in place of the shared store.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
}

/// What denied a request.
#[derive(Serialize)]
struct DeniedBy<'a> {
    /// The index of the call.
    call: usize,
    rule: Cow<'a, str>,
    limit: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// The fields of a decision.
    pub(in crate::http) fn new(decided: &Decided<'a>) -> Fields<'a> {
        let denied = decided.denied_call().zip(decided.denied_rule());
        let denied = denied.map(|(call, rule)| DeniedBy { call, rule, limit: decided.denied_by() });
        Fields {
            allowed: decided.allowed(),
            limit: decided.limit(),
            remaining: decided.remaining(),
            retry_after_ms: match decided.retry_after() {
                Some(RetryAfter::After(wait)) => Some(wait.as_millis_up()),
                Some(RetryAfter::Never) | None => None,
            },
            reset_after_ms: decided.reset_after().as_millis_up(),
            delay_ms: decided.delay().as_millis_up(),
            denied_by: decided.denied_by(),
            reason: decided.reason().map(Reason::as_str),
            denied,
            full_pool: decided.full_pool().map(FullPool::as_str),
            source: decided.fallback().map(Source::as_str),
        }
    }
}

/// What some verbs return besides the decision.
#[derive(Serialize)]
#[serde(untagged)]
pub(in crate::http) enum Extra<'a> {
    Nothing {},
    Taken { taken: u64 },
    Reserved { receipt: Option<String>, granted: u64 },
    ReservedAll { receipt: Option<String>, checks: Vec<Fields<'a>> },
    Lease { lease: Option<String> },
    Checks { checks: Vec<Fields<'a>> },
}

/// A decision and what some verbs add to it.
#[derive(Serialize)]
pub(in crate::http) struct AnswerBody<'a> {
    #[serde(flatten)]
    pub(in crate::http) fields: Fields<'a>,
    #[serde(flatten)]
    pub(in crate::http) extra: Extra<'a>,
}

/// The result of a cancel, settle, renew, release or reset.
#[derive(Serialize)]
pub(in crate::http) struct Done {
    pub(in crate::http) done: bool,
}

/// When the next window starts.
#[derive(Serialize)]
pub(in crate::http) struct NextBody {
    next_ms: u64,
}

impl From<Time> for NextBody {
    fn from(time: Time) -> NextBody {
        NextBody { next_ms: unix_millis_up(time) }
    }
}

/// What a key has used.
#[derive(Serialize)]
pub(in crate::http) struct Usages {
    limits: Vec<OneUsage>,
}

/// What a key has used under one limit. Milliseconds are rounded up.
#[derive(Serialize)]
struct OneUsage {
    text: String,
    limit: u64,
    used: u64,
    remaining: u64,
    reset_after_ms: u64,
    window_start_ms: Option<u64>,
    window_end_ms: Option<u64>,
}

impl From<Vec<LimitUsage>> for Usages {
    fn from(limits: Vec<LimitUsage>) -> Usages {
        let one = |LimitUsage { text, usage }| OneUsage {
            text,
            limit: usage.limit,
            used: usage.used,
            remaining: usage.remaining,
            reset_after_ms: usage.reset_after.as_millis_up(),
            window_start_ms: usage.window.map(|window| unix_millis_up(window.start)),
            window_end_ms: usage.window.map(|window| unix_millis_up(window.end)),
        };
        Usages { limits: limits.into_iter().map(one).collect() }
    }
}
