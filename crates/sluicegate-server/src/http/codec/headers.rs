//! The header fields of a decision: `RateLimit-Policy`, `RateLimit` and `Retry-After`.
//!
//! `sluicegate::http_fields` formats one limit; here the calls of a request are combined. A rule's
//! only limit has the rule's name. Of several, each has its number after a `#`, which no rule name
//! contains.

use crate::engine::{Decided, RuleCall};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate::http_fields::{self, Policy, policy_about, policy_name, quoted, retry_after_s};

const RATELIMIT: HeaderName = HeaderName::from_static(http_fields::RATELIMIT);
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static(http_fields::RATELIMIT_POLICY);

/// The fields of one request.
pub(in crate::http) struct RateLimit {
    policies: String,
    standings: String,
    /// The names of the policies that denied the request.
    pub(in crate::http) violated: Vec<String>,
}

/// The policies of one name.
struct Named<'a> {
    name: &'a str,
    policies: Vec<Policy>,
}

/// The state of a key under the policies of a name.
struct PolicyState {
    named: usize,
    /// The index of the policy, if it is known.
    index: Option<usize>,
    remaining: u64,
    reset_s: u64,
    denied: bool,
}

impl RateLimit {
    /// The fields of a call, or of several that were decided together.
    pub(in crate::http) fn of<'c>(each: impl Iterator<Item = (&'c RuleCall<'c>, Decided<'c>)>) -> RateLimit {
        let mut all: Vec<Named<'_>> = Vec::new();
        let mut standings: Vec<PolicyState> = Vec::new();
        for (call, decided) in each {
            let name = call.rule().name();
            let named = all.iter().position(|named| named.name == name).unwrap_or_else(|| {
                all.push(Named { name, policies: Vec::new() });
                all.len() - 1
            });
            let of_call: Vec<Policy> = match call.limit_list() {
                [] => vec![Policy::of_quota(decided.limit())],
                limits => limits.iter().map(Policy::of).collect(),
            };
            for policy in &of_call {
                if !all[named].policies.contains(policy) {
                    all[named].policies.push(*policy);
                }
            }
            let about = policy_about(&of_call, decided.denied_at(), decided.limit());
            let about = about.and_then(|index| of_call.get(index));
            let index = about.and_then(|policy| all[named].policies.iter().position(|one| one == policy));
            add(
                &mut standings,
                PolicyState {
                    named,
                    index,
                    remaining: decided.remaining(),
                    reset_s: decided.reset_after().as_secs_up(),
                    denied: !decided.allowed(),
                },
            );
        }
        RateLimit::written(&all, &standings)
    }

    fn written(all: &[Named<'_>], standings: &[PolicyState]) -> RateLimit {
        let mut policies = Vec::new();
        for named in all {
            for (index, policy) in named.policies.iter().enumerate() {
                policies.push(format!("{}{policy}", quoted(&named.name_of(Some(index)))));
            }
        }
        let mut items = Vec::new();
        let mut violated = Vec::new();
        for PolicyState { named, index, remaining, reset_s, denied } in standings {
            let name = all[*named].name_of(*index);
            items.push(format!("{};r={remaining};t={reset_s}", quoted(&name)));
            if *denied {
                violated.push(name);
            }
        }
        RateLimit { policies: policies.join(", "), standings: items.join(", "), violated }
    }

    /// Writes the fields; `decided` is the overall decision.
    pub(in crate::http) fn write(&self, decided: &Decided<'_>, headers: &mut HeaderMap) {
        for (name, text) in [(RATELIMIT_POLICY, &self.policies), (RATELIMIT, &self.standings)] {
            // Cannot fail: `quoted` lets only plain text through, and the rest is numbers.
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        }
        let wait = decided.retry_after().filter(|_| !decided.allowed()).and_then(retry_after_s);
        if let Some(seconds) = wait {
            headers.insert(RETRY_AFTER, seconds.into());
        }
    }
}

impl Named<'_> {
    fn name_of(&self, index: Option<usize>) -> String {
        policy_name(self.name, index, self.policies.len())
    }
}

/// Adds a standing. A name occurs once in the field: of two keys under one policy, the one with
/// less remaining counts.
fn add(standings: &mut Vec<PolicyState>, new: PolicyState) {
    let same = |old: &&mut PolicyState| (old.named, old.index) == (new.named, new.index);
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
