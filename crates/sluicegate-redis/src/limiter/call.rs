//! Checks: one, or a batch in one round trip.

use super::Inner;
use super::reply::ScriptReply;
use super::script_calls::{Operation, ScriptVerb, execute_each};
use sluicegate::Time;
use sluicegate::backend::{Answer, Source, StoreFailure};
use sluicegate_core::bounds::COUNT_MAX;
use sluicegate_core::decision::store::unlimited;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::slice;
use std::sync::Arc;
use tokio::time::Instant;

/// One of several calls: see [`RedisLimiter::call`](crate::RedisLimiter::call).
#[derive(Clone)]
#[must_use = "pass it to `check_all`, `check_each` or `reserve_all`"]
pub struct RedisCall<'a> {
    /// `None` if the key has no limit.
    pub(super) limited: Option<LimitedCall<'a>>,
    cost: u64,
}

/// A call on a key with limits.
#[derive(Clone)]
pub(super) struct LimitedCall<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) key: Cow<'a, [u8]>,
    pub(super) cost: u64,
    pub(super) at: Option<Time>,
}

impl<'a> RedisCall<'a> {
    pub(super) fn new(limited: LimitedCall<'a>) -> RedisCall<'a> {
        let cost = limited.cost;
        RedisCall { limited: Some(limited), cost }
    }

    /// A call on a key without a limit: it is always allowed and charges nothing. It has an index
    /// among the calls, and takes one of the numbers of a settle.
    pub fn unlimited(cost: u64) -> RedisCall<'a> {
        RedisCall { limited: None, cost }
    }

    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    /// Sets the time of the call, for tests and replays with [`check_each`] and
    /// [`settle_all`](crate::settle_all).
    pub fn at(self, now: Time) -> RedisCall<'a> {
        let limited = self.limited.map(|call| LimitedCall { at: Some(now), ..call });
        RedisCall { limited, ..self }
    }
}

impl LimitedCall<'_> {
    pub(super) fn is_same_key(&self, other: &LimitedCall<'_>) -> bool {
        self.key == other.key && self.inner.scope == other.inner.scope && self.is_same_store(other)
    }

    pub(super) fn is_same_store(&self, other: &LimitedCall<'_>) -> bool {
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
    let limited: Vec<&LimitedCall<'_>> = calls.iter().filter_map(|call| call.limited.as_ref()).collect();
    let mut answers = Vec::with_capacity(limited.len());
    for calls in limited.chunk_by(|one, other| one.is_same_store(other)) {
        check_in_store(calls, &mut answers).await;
    }
    let mut answers = answers.into_iter();
    let without_limit = || Ok(Answer::new(unlimited(COUNT_MAX), Source::Store));
    let answer = |call: &RedisCall<'_>| match call.limited {
        Some(_) => answers.next(),
        None => Some(without_limit()),
    };
    calls.iter().filter_map(answer).collect()
}

async fn check_in_store(calls: &[&LimitedCall<'_>], answers: &mut Vec<Result<Answer, StoreFailure>>) {
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
                        calls: slice::from_ref(calls[*index]),
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
fn under_same_limits(calls: &[&LimitedCall<'_>], left: &[usize]) -> usize {
    let inner = |index: &usize| calls[*index].inner;
    if left.iter().all(|index| Arc::ptr_eq(inner(index), inner(&left[0]))) {
        return left.len();
    }
    let mut limiters = HashMap::new();
    let is_other = |index: &usize| {
        let call = calls[*index];
        let known = *limiters.entry((call.inner.scope.as_str(), &*call.key)).or_insert(call.inner);
        !Arc::ptr_eq(known, call.inner)
    };
    left.iter().position(is_other).unwrap_or(left.len())
}

/// Formats a key for a message.
pub(super) fn shown(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&key[..key.len().min(64)]))
}

impl fmt::Debug for RedisCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = f.debug_struct("RedisCall");
        if let Some(LimitedCall { inner, key, .. }) = &self.limited {
            call.field("scope", &inner.scope).field("key", &shown(key));
        }
        call.field("cost", &self.cost).finish_non_exhaustive()
    }
}
