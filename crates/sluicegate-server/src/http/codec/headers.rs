//! The header fields of a decision: `RateLimit-Policy`, `RateLimit` and `Retry-After`.
//!
//! The first two follow draft-ietf-httpapi-ratelimit-headers-11. Both are lists whose items are names with parameters:
//!
//! ```text
//! RateLimit-Policy: "api#1";q=10;w=1;sluice-burst=50, "api#2";q=1000;w=86400
//! RateLimit: "api#2";r=12;t=3600
//! ```
//!
//! A rule's only limit has the rule's name; of several, each has its number behind a `#`, which no name of a rule has.

use crate::engine::{Rule, Verdict};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate::core::Algorithm as _;
use sluicegate::{Limit, RetryAfter, Time};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const SECOND_US: u64 = 1_000_000;

/// A call that was decided, under which rule.
pub(in crate::http) struct Decided<'a> {
    pub(in crate::http) rule: &'a Rule,
    pub(in crate::http) key: &'a [u8],
    pub(in crate::http) verdict: &'a Verdict,
}

/// What the fields say of one request.
pub(in crate::http) struct RateLimit {
    policies: String,
    standings: String,
    /// The names of the policies that said no.
    pub(in crate::http) violated: Vec<String>,
}

/// A limit as the draft tells it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Policy {
    /// How much a window admits.
    quota: u32,
    /// Its length in seconds; the draft knows no fractions of one, and then this is not told.
    window_s: Option<u64>,
    /// How much an idle key could take at once, if that is another number.
    burst: Option<u32>,
}

/// The policies of one name.
struct Named<'a> {
    name: &'a str,
    policies: Vec<Policy>,
}

/// How a key stands under the policies of a name.
struct Standing {
    named: usize,
    /// Which of its policies this is about, if that can be told.
    place: Option<usize>,
    remaining: u32,
    reset_s: u64,
    denied: bool,
}

impl RateLimit {
    /// The fields for a call, or several that were decided together.
    pub(in crate::http) fn of(each: &[Decided<'_>]) -> RateLimit {
        let mut all: Vec<Named<'_>> = Vec::new();
        let mut standings: Vec<Standing> = Vec::new();
        for Decided { rule, key, verdict } in each {
            let name = rule.name();
            let named = all.iter().position(|named| named.name == name).unwrap_or_else(|| {
                all.push(Named { name, policies: Vec::new() });
                all.len() - 1
            });
            let limits = rule.limits_for(key);
            let of_call: Vec<Policy> = match limits {
                [] => vec![Policy { quota: verdict.limit, window_s: None, burst: None }],
                limits => limits.iter().map(Policy::of).collect(),
            };
            for policy in &of_call {
                if !all[named].policies.contains(policy) {
                    all[named].policies.push(*policy);
                }
            }
            let about = about(limits, verdict).and_then(|place| of_call.get(place));
            let place = about.and_then(|policy| all[named].policies.iter().position(|one| one == policy));
            add(
                &mut standings,
                Standing {
                    named,
                    place,
                    remaining: verdict.remaining,
                    reset_s: verdict.reset_after.as_secs_up(),
                    denied: !verdict.allowed,
                },
            );
        }
        RateLimit::written(&all, &standings)
    }

    fn written(all: &[Named<'_>], standings: &[Standing]) -> RateLimit {
        let mut policies = Vec::new();
        for named in all {
            for (place, policy) in named.policies.iter().enumerate() {
                policies.push(format!("{}{}", quoted(&named.name_of(Some(place))), policy.parameters()));
            }
        }
        let mut items = Vec::new();
        let mut violated = Vec::new();
        for Standing { named, place, remaining, reset_s, denied } in standings {
            let name = all[*named].name_of(*place);
            items.push(format!("{};r={remaining};t={reset_s}", quoted(&name)));
            if *denied {
                violated.push(name);
            }
        }
        RateLimit { policies: policies.join(", "), standings: items.join(", "), violated }
    }

    /// Writes the fields; `verdict` is that of the request as a whole.
    pub(in crate::http) fn write(&self, verdict: &Verdict, headers: &mut HeaderMap) {
        for (name, text) in [(RATELIMIT_POLICY, &self.policies), (RATELIMIT, &self.standings)] {
            // Cannot fail: `quoted` lets only plain text through, and the rest is numbers.
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        }
        if let (false, Some(RetryAfter::After(wait))) = (verdict.allowed, verdict.retry_after) {
            headers.insert(RETRY_AFTER, wait.as_secs_up().into());
        }
    }
}

impl Policy {
    fn of(limit: &Limit) -> Policy {
        let quota = limit.count();
        let period = limit.period().as_micros();
        let at_once = limit.made_at(Time::EPOCH).limit();
        Policy {
            quota,
            window_s: period.is_multiple_of(SECOND_US).then_some(period / SECOND_US),
            burst: (at_once != quota).then_some(at_once),
        }
    }

    fn parameters(&self) -> String {
        let mut text = format!(";q={}", self.quota);
        if let Some(window) = self.window_s {
            text += &format!(";w={window}");
        }
        if let Some(burst) = self.burst {
            text += &format!(";sluice-burst={burst}");
        }
        text
    }
}

impl Named<'_> {
    fn name_of(&self, place: Option<usize>) -> String {
        match place {
            Some(place) if self.policies.len() > 1 => format!("{}#{}", self.name, place + 1),
            _ => self.name.into(),
        }
    }
}

/// Which of a call's limits its verdict speaks of: the one that said no, else the one that the verdict's `limit` is of, if
/// there is but one.
fn about(limits: &[Limit], verdict: &Verdict) -> Option<usize> {
    if limits.len() < 2 {
        return Some(0);
    }
    if let Some(text) = &verdict.denied_by {
        return limits.iter().position(|limit| *limit.to_string() == **text);
    }
    let is_of = |limit: &Limit| limit.made_at(Time::EPOCH).limit() == verdict.limit;
    let place = limits.iter().position(is_of)?;
    (!limits[place + 1..].iter().any(is_of)).then_some(place)
}

/// No name stands twice in the field: of two keys under one policy, the one with less remaining is told.
fn add(standings: &mut Vec<Standing>, new: Standing) {
    let same = |old: &&mut Standing| (old.named, old.place) == (new.named, new.place);
    match standings.iter_mut().find(same) {
        None => standings.push(new),
        Some(old) => {
            let denied = old.denied || new.denied;
            if new.remaining < old.remaining {
                *old = new;
            }
            old.denied = denied;
        }
    }
}

/// A string of structured fields. Names of rules need no escapes; whatever else came would be left out.
fn quoted(name: &str) -> String {
    let plain: String = name.chars().filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\')).collect();
    format!("\"{plain}\"")
}
