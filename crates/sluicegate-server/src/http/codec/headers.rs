//! The header fields of a decision: `RateLimit-Policy`, `RateLimit` and `Retry-After`.
//!
//! `sluicegate::http_fields` formats one limit; here the calls of a request are combined. A rule's
//! only limit has the rule's name. Of several, each has its number after a `#`, which no rule name
//! contains.

use crate::engine::{Decided, LimitUsage, RuleCall};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate::Span;
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

/// What is known about one call after its request was decided.
pub(in crate::http) struct CallState<'c> {
    pub(in crate::http) call: &'c RuleCall<'c>,
    /// The decision on this call alone, if there is one.
    pub(in crate::http) decided: Option<Decided<'c>>,
    /// The usage under each limit, in their order; empty if it is not known.
    pub(in crate::http) usages: Vec<LimitUsage>,
}

/// The policies of one name.
struct Named<'a> {
    name: &'a str,
    policies: Vec<Policy>,
}

/// Identifies a policy.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PolicyId {
    named: usize,
    /// The index of the policy, if it is known.
    index: Option<usize>,
}

/// The state of a key under a policy.
struct PolicyState {
    policy: PolicyId,
    remaining: u64,
    reset_after: Span,
}

impl CallState<'_> {
    /// The policies of its limits. Of an unlimited or blocked key only the quota is known.
    fn policies(&self) -> Vec<Policy> {
        match self.call.limit_list() {
            [] => {
                let used = self.usages.first().map(|LimitUsage { usage, .. }| usage.limit);
                let limit = self.decided.map(|decided| decided.limit()).or(used);
                limit.map(Policy::of_quota).into_iter().collect()
            }
            limits => limits.iter().map(Policy::of).collect(),
        }
    }
}

impl RateLimit {
    /// The fields of a call, or of several that were decided together.
    pub(in crate::http) fn of(calls: &[CallState<'_>]) -> RateLimit {
        let mut all: Vec<Named<'_>> = Vec::new();
        let mut states: Vec<PolicyState> = Vec::new();
        let mut violated: Vec<PolicyId> = Vec::new();
        for state in calls {
            let name = state.call.rule().name();
            let named = all.iter().position(|named| named.name == name).unwrap_or_else(|| {
                all.push(Named { name, policies: Vec::new() });
                all.len() - 1
            });
            let policies = state.policies();
            let indexes = all[named].add(&policies);
            let policy = |limit: Option<usize>| {
                let index = limit.and_then(|limit| indexes.get(limit).copied());
                PolicyId { named, index }
            };
            for (limit, LimitUsage { usage, .. }) in state.usages.iter().enumerate() {
                let (remaining, reset_after) = (usage.remaining, usage.reset_after);
                add(&mut states, PolicyState { policy: policy(Some(limit)), remaining, reset_after });
            }
            let Some(decided) = state.decided else { continue };
            let about = policy(policy_about(&policies, decided.denied_at(), decided.limit()));
            if state.usages.is_empty() {
                let (remaining, reset_after) = (decided.remaining(), decided.reset_after());
                add(&mut states, PolicyState { policy: about, remaining, reset_after });
            }
            if !decided.allowed() && !violated.contains(&about) {
                violated.push(about);
            }
        }
        RateLimit::written(&all, &states, &violated)
    }

    fn written(all: &[Named<'_>], states: &[PolicyState], violated: &[PolicyId]) -> RateLimit {
        let name = |PolicyId { named, index }: PolicyId| {
            policy_name(all[named].name, index, all[named].policies.len())
        };
        let mut policies = Vec::new();
        for (named, Named { policies: of_name, .. }) in all.iter().enumerate() {
            for (index, policy) in of_name.iter().enumerate() {
                policies.push(format!("{}{policy}", quoted(&name(PolicyId { named, index: Some(index) }))));
            }
        }
        let item = |state: &PolicyState| {
            let PolicyState { policy, remaining, reset_after } = state;
            format!("{};r={remaining};t={}", quoted(&name(*policy)), reset_after.as_secs_up())
        };
        RateLimit {
            policies: policies.join(", "),
            standings: states.iter().map(item).collect::<Vec<_>>().join(", "),
            violated: violated.iter().copied().map(name).collect(),
        }
    }

    /// Writes the fields; `decided` is the overall decision.
    pub(in crate::http) fn write(&self, decided: &Decided<'_>, headers: &mut HeaderMap) {
        for (name, text) in [(RATELIMIT_POLICY, &self.policies), (RATELIMIT, &self.standings)] {
            // Cannot fail: `quoted` lets only plain text through, and the rest is numbers.
            if !text.is_empty()
                && let Ok(value) = HeaderValue::from_str(text)
            {
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
    /// Adds the policies of a call, unless calls before it had the same ones. Returns their
    /// indexes. Equal limits at two positions of a list are two policies.
    fn add(&mut self, policies: &[Policy]) -> Vec<usize> {
        let mut indexes = Vec::with_capacity(policies.len());
        for policy in policies {
            let is_free = |(index, known): &(usize, &Policy)| *known == policy && !indexes.contains(index);
            let known = self.policies.iter().enumerate().find(is_free).map(|(index, _)| index);
            indexes.push(known.unwrap_or_else(|| {
                self.policies.push(*policy);
                self.policies.len() - 1
            }));
        }
        indexes
    }
}

/// Adds the state of a key. A policy occurs once in the field: of two keys under it, the one with
/// less remaining counts.
fn add(states: &mut Vec<PolicyState>, new: PolicyState) {
    match states.iter_mut().find(|old| old.policy == new.policy) {
        None => states.push(new),
        Some(old) if new.remaining < old.remaining => *old = new,
        Some(_) => {}
    }
}
