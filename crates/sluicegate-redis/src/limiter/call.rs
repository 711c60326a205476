//! Checks: one, a batch in one round trip, or several calls that are charged all or nothing.

use super::reply::ScriptReply;
use super::script_calls::{Operation, ScriptVerb, execute_each};
use super::{Inner, require_agreement};
use crate::failure::bad_state;
use crate::link::slot;
use sluicegate::backend::{Answer, BackendError, Source, StoreFailure};
use sluicegate::{CALLS_MAX, Decision, Time, VerbError};
use sluicegate_core::all_of::{self, Part, attributed, peek_all};
use sluicegate_core::decision::store::{StoreDecision as _, unlimited};
use sluicegate_core::{AnyLimit, AnyState, bounds::COUNT_MAX};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::slice;
use std::sync::Arc;
use tokio::time::Instant;

/// One of several calls: see [`RedisLimiter::call`](crate::RedisLimiter::call).
#[derive(Clone)]
#[must_use = "pass it to `check_all` or `check_each`"]
pub struct RedisCall<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) key: Cow<'a, [u8]>,
    pub(super) cost: u64,
    pub(super) at: Option<Time>,
}

impl<'a> RedisCall<'a> {
    /// Sets the time of the call, for tests and replays with [`check_each`].
    pub fn at(self, now: Time) -> RedisCall<'a> {
        RedisCall { at: Some(now), ..self }
    }

    pub(super) fn is_same_key(&self, other: &RedisCall<'_>) -> bool {
        self.key == other.key && self.inner.scope == other.inner.scope && self.is_same_store(other)
    }

    fn is_same_store(&self, other: &RedisCall<'_>) -> bool {
        Arc::ptr_eq(&self.inner.store.inner, &other.inner.store.inner)
    }

    /// Returns the store's answer, or the fallback's. `began` is a time before the call was sent.
    fn answered(
        &self,
        reply: Result<ScriptReply, StoreFailure>,
        began: Instant,
    ) -> Result<Answer, StoreFailure> {
        let decision = reply.and_then(|reply| self.inner.decided(reply, self.cost));
        self.inner.cache_denial(&self.key, self.cost, self.at, began, &decision);
        self.inner.answered(decision, |limiter| Some(limiter.check_cost(&*self.key, self.cost)))
    }
}

/// Decides independent calls in one round trip, and returns an answer for each. Calls on one key
/// are decided in order. Calls on a key whose limits differ from those of an earlier call take
/// another round trip, and so do calls to another store.
pub async fn check_each(calls: &[RedisCall<'_>]) -> Vec<Result<Answer, StoreFailure>> {
    let mut answers = Vec::with_capacity(calls.len());
    for calls in calls.chunk_by(RedisCall::is_same_store) {
        check_in_store(calls, &mut answers).await;
    }
    answers
}

async fn check_in_store(calls: &[RedisCall<'_>], answers: &mut Vec<Result<Answer, StoreFailure>>) {
    let Some(store) = calls.first().map(|call| &call.inner.store.inner) else { return };
    let began = Instant::now();
    let mut found: Vec<Option<Result<Answer, StoreFailure>>> =
        calls.iter().map(|call| call.inner.cached_denial(&call.key, call.cost, call.at).map(Ok)).collect();
    let left: Vec<usize> = (0..calls.len()).filter(|index| found[*index].is_none()).collect();
    if !left.is_empty() {
        match store.admit(left.len()).await {
            Err(failure) => {
                for index in left {
                    found[index] = Some(calls[index].answered(Err(failure.clone()), began));
                }
            }
            Ok(mut round_trip) => {
                let mut left = left.as_slice();
                while !left.is_empty() {
                    let (together, rest) = left.split_at(under_same_limits(calls, left));
                    let operation = |index: &usize| Operation {
                        calls: slice::from_ref(&calls[*index]),
                        verb: ScriptVerb::Check,
                    };
                    let operations: Vec<Operation<'_>> = together.iter().map(operation).collect();
                    for (index, reply) in
                        together.iter().zip(execute_each(&mut round_trip, &operations).await)
                    {
                        found[*index] = Some(calls[*index].answered(reply, began));
                    }
                    left = rest;
                }
            }
        }
    }
    answers.extend(found.into_iter().flatten());
}

/// Returns how many calls can be sent together: a state of another limit is converted between round
/// trips, so each key must have the same limits in all of them.
fn under_same_limits(calls: &[RedisCall<'_>], left: &[usize]) -> usize {
    let inner = |index: &usize| calls[*index].inner;
    if left.iter().all(|index| Arc::ptr_eq(inner(index), inner(&left[0]))) {
        return left.len();
    }
    let mut limiters = HashMap::new();
    let is_other = |index: &usize| {
        let call = &calls[*index];
        let known = *limiters.entry((call.inner.scope.as_str(), &*call.key)).or_insert(call.inner);
        !Arc::ptr_eq(known, call.inner)
    };
    left.iter().position(is_other).unwrap_or(left.len())
}

/// Charges all calls if all are allowed, or none. Returns the answer for all, and a decision for
/// each call: the state of its key after the charge, or, if the calls are denied, whether this one
/// would be allowed alone.
///
/// In a cluster the keys must be in one hash slot, as keys with one hash tag such as
/// `{tenant:acme}` are. The same key of one scope given twice is one call with both costs.
///
/// # Errors
/// If there are more than [`CALLS_MAX`] calls, one is under `count=all` or `smooth`, keys are in
/// different hash slots, or the store gives no answer. Nothing is then charged, unless the failure
/// says that it may have been. (`on_store_failure` is not applied, since it may differ between the
/// limiters.)
pub async fn check_all(calls: &[RedisCall<'_>]) -> Result<(Answer, Vec<Decision>), BackendError> {
    charge_all(calls, None).await
}

/// Like [`check_all`], at time `now`.
///
/// # Errors
/// As [`check_all`].
pub async fn check_all_at(
    calls: &[RedisCall<'_>],
    now: Time,
) -> Result<(Answer, Vec<Decision>), BackendError> {
    charge_all(calls, Some(now)).await
}

async fn charge_all(
    calls: &[RedisCall<'_>],
    at: Option<Time>,
) -> Result<(Answer, Vec<Decision>), BackendError> {
    if calls.len() > CALLS_MAX {
        return Err(VerbError::TooManyCalls(calls.len()).into());
    }
    let merged = merged(calls, at);
    let Some(first) = merged.first() else {
        return Ok((Answer::new(unlimited(COUNT_MAX), Source::Store), Vec::new()));
    };
    let store = &first.inner.store.inner;
    for call in &merged {
        if !call.is_same_store(first) {
            return Err(VerbError::StoresDiffer.into());
        }
        if let Some(limit) = call.inner.limits.iter().find(|limit| !limit.fits_in_a_list()) {
            let text = limit.to_string();
            let is_smooth = limit.algorithm() == "smooth";
            let error = if is_smooth { VerbError::Smooth(text) } else { VerbError::CountsDenied(text) };
            return Err(error.into());
        }
    }
    if store.link.is_cluster() {
        let slot_of = |call: &RedisCall<'_>| call.state_names().next().map(|name| slot(&name));
        if let Some(other) = merged.iter().find(|call| slot_of(call) != slot_of(first)) {
            return Err(VerbError::SlotsDiffer(shown(&first.key), shown(&other.key)).into());
        }
    }
    let decided_all = async {
        let operations = [Operation { calls: &merged, verb: ScriptVerb::Check }];
        let reply = execute_each(&mut store.admit(1).await?, &operations).await.pop();
        decided(calls, &merged, reply.unwrap_or_else(|| Err(bad_state()))?)
    };
    let decided_all = decided_all.await;
    store.counters.count(decided_all.is_ok().then_some(Source::Store));
    Ok(decided_all?)
}

/// Recomputes the decisions on the states before the call.
fn decided(
    calls: &[RedisCall<'_>],
    merged: &[RedisCall<'_>],
    reply: ScriptReply,
) -> Result<(Answer, Vec<Decision>), StoreFailure> {
    let ScriptReply::Decided { success, now, states } = reply else { return Err(bad_state()) };
    let limits: Vec<_> = merged
        .iter()
        .flat_map(|call| call.inner.encoded.iter().map(move |encoded| (encoded, call)))
        .collect();
    let states: Option<Vec<AnyState>> = limits
        .iter()
        .zip(&states)
        .map(|((encoded, call), raw)| encoded.read(raw, now, call.inner.preserve_recovery_time))
        .collect();
    let mut states = states.filter(|states| states.len() == limits.len()).ok_or_else(bad_state)?;
    let mut parts: Vec<Part<'_, AnyLimit>> = limits
        .iter()
        .zip(&mut states)
        .map(|((encoded, call), state)| Part { limit: &encoded.limit, state, cost: call.cost })
        .collect();
    let index_of = |call: &RedisCall<'_>| calls.iter().position(|other| other.is_same_key(call));
    let limits_of = merged.iter().map(|call| (index_of(call).unwrap_or(0), call.inner.encoded.len()));
    let decision = attributed(all_of::check_all(&mut parts, now), limits_of);
    require_agreement(success, decision.allowed())?;
    // Each call's own decision: its key after the charge, or whether it would be allowed alone.
    let mut each_merged = Vec::with_capacity(merged.len());
    let mut rest = parts.as_mut_slice();
    for call in merged {
        let (own, others) = rest.split_at_mut(call.inner.encoded.len());
        if decision.allowed() {
            for part in &mut *own {
                part.cost = 0;
            }
        }
        each_merged.push(peek_all(own, now));
        rest = others;
    }
    let index = |call: &RedisCall<'_>| merged.iter().position(|other| other.is_same_key(call));
    let each = calls.iter().enumerate();
    let each = each.filter_map(|(place, call)| Some(each_merged[index(call)?].of_call(place))).collect();
    Ok((Answer::new(decision, Source::Store), each))
}

/// Merges calls with the same scope and key into one with both costs.
fn merged<'a>(calls: &[RedisCall<'a>], at: Option<Time>) -> Vec<RedisCall<'a>> {
    let mut merged: Vec<RedisCall<'a>> = Vec::with_capacity(calls.len());
    for call in calls {
        match merged.iter_mut().find(|other| other.is_same_key(call)) {
            Some(other) => other.cost = other.cost.saturating_add(call.cost),
            None => merged.push(RedisCall { at, ..call.clone() }),
        }
    }
    merged
}

/// Formats a key for a message.
fn shown(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&key[..key.len().min(64)]))
}

impl fmt::Debug for RedisCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCall")
            .field("scope", &self.inner.scope)
            .field("key", &shown(&self.key))
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}
