//! A decision as JSON.

use crate::engine::{Decided, Reason, Source};
use crate::wire::unix_millis_up;
use serde::Serialize;
use sluicegate::{RetryAfter, Time};

/// The fields of a decision: always these eight, and `source` if a fallback decided. Milliseconds
/// are rounded up.
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
    /// What decided in place of the shared store.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
}

impl<'a> From<&Decided<'a>> for Fields<'a> {
    fn from(decided: &Decided<'a>) -> Fields<'a> {
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
    Receipt { receipt: Option<String> },
    Lease { lease: Option<String> },
    Checks { checks: Vec<Fields<'a>> },
}

/// A decision and what some verbs add to it.
#[derive(Serialize)]
pub(in crate::http) struct Answer<'a> {
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
pub(in crate::http) struct Next {
    next_ms: u64,
}

impl From<Time> for Next {
    fn from(time: Time) -> Next {
        Next { next_ms: unix_millis_up(time) }
    }
}
