//! Several calls that are charged all or nothing: by a check, or with one receipt for all of them.

use super::call::{LimitedCall, RedisCall, shown};
use super::reply::ScriptReply;
use super::script_calls::{Operation, ScriptVerb, execute_each};
use super::{RedisLimiter, RedisReservation, by_slot, require_agreement};
use crate::encode::RawState;
use crate::failure::bad_state;
use crate::link::slot;
use crate::receipt::{ReceiptKey, StoredReceipt};
use sluicegate::backend::{Answer, BackendError, Reserved, Source, StoreFailure};
use sluicegate::{CALLS_MAX, Decision, ReserveOptions, Time, VerbError};
use sluicegate_core::algorithm::Verb;
use sluicegate_core::all_of::{self, Part, attributed, peek_all};
use sluicegate_core::decision::store::{StoreDecision as _, unlimited};
use sluicegate_core::verbs::Verbs as _;
use sluicegate_core::{AnyLimit, AnyState, bounds::COUNT_MAX};
use std::sync::Arc;

/// Charges all calls if all are allowed, or none. Returns the answer for all, and a decision for
/// each call: the state of its key after the charge, or, if the calls are denied, whether this one
/// would be allowed alone.
///
/// The same key of one scope given twice is one call with both costs. Keys in one hash slot of a
/// cluster, as keys with one hash tag such as `{tenant:acme}` are, take one script call; others are
/// reserved slot by slot and cancelled on a denial, so that another call may be denied meanwhile
/// (`by_slot.rs`).
///
/// # Errors
/// If there are more than [`CALLS_MAX`] calls, one is under `count=all` or `smooth`, or under
/// `pacer` and keys are in different hash slots, or the store gives no answer. Nothing is then
/// charged, unless the failure says that it may have been. (`on_store_failure` is not applied,
/// since it may differ between the limiters.)
pub async fn check_all(calls: &[RedisCall<'_>]) -> Result<(Answer, Vec<Decision>), BackendError> {
    charge_all(&AllCalls::new(calls, None)?, ScriptVerb::Check).await
}

/// Like [`check_all`], at time `now`.
///
/// # Errors
/// As [`check_all`].
pub async fn check_all_at(
    calls: &[RedisCall<'_>],
    now: Time,
) -> Result<(Answer, Vec<Decision>), BackendError> {
    charge_all(&AllCalls::new(calls, Some(now))?, ScriptVerb::Check).await
}

/// Reserves several calls as one, under a single receipt: if all are allowed, all are charged; if
/// one is denied, none is.
///
/// # Errors
/// As [`check_all`]; if the options do not fit (several calls have no `at_least`), or a key has too
/// many open receipts.
pub async fn reserve_all(
    calls: &[RedisCall<'_>],
    options: impl Into<ReserveOptions>,
) -> Result<RedisReservation, BackendError> {
    reserve(calls, options.into(), None).await.map(|(reservation, _)| reservation)
}

/// Like [`reserve_all`], at time `now`.
///
/// # Errors
/// As [`reserve_all`].
pub async fn reserve_all_at(
    calls: &[RedisCall<'_>],
    options: impl Into<ReserveOptions>,
    now: Time,
) -> Result<RedisReservation, BackendError> {
    reserve(calls, options.into(), Some(now)).await.map(|(reservation, _)| reservation)
}

/// Reserves several calls as one, with a decision for each call beside the one for all: see
/// [`check_all`].
///
/// # Errors
/// As [`reserve_all`].
pub async fn reserve_all_each(
    calls: &[RedisCall<'_>],
    options: impl Into<ReserveOptions>,
) -> Result<(RedisReservation, Vec<Decision>), BackendError> {
    reserve(calls, options.into(), None).await
}

/// Like [`reserve_all_each`], at time `now`.
///
/// # Errors
/// As [`reserve_all`].
pub async fn reserve_all_each_at(
    calls: &[RedisCall<'_>],
    options: impl Into<ReserveOptions>,
    now: Time,
) -> Result<(RedisReservation, Vec<Decision>), BackendError> {
    reserve(calls, options.into(), Some(now)).await
}

async fn reserve(
    calls: &[RedisCall<'_>],
    options: ReserveOptions,
    at: Option<Time>,
) -> Result<(RedisReservation, Vec<Decision>), BackendError> {
    let all = AllCalls::new(calls, at)?;
    if options.at_least.is_some() {
        return Err(VerbError::AtLeastOfSeveral.into());
    }
    options.checked(0)?;
    let mut limits = all.merged.iter().flat_map(|call| &call.inner.compiled);
    limits.try_for_each(|limit| limit.require(Verb::Reserve))?;
    let receipt = all.receipt();
    let verb = ScriptVerb::Reserve { receipt: &receipt, options };
    let _invalidate: Vec<_> =
        all.merged.iter().map(|call| call.inner.invalidate_denials(&call.key)).collect();
    let (answer, each) = charge_all(&all, verb).await?;
    let is_charged = answer.allowed() && !all.merged.is_empty();
    let costs = calls.iter().map(RedisCall::cost);
    let granted = if answer.allowed() { costs.fold(0, u64::saturating_add) } else { 0 };
    let reserved = Reserved::new(answer, granted, is_charged.then(|| receipt.receipt()));
    let limiters = all.merged.iter().map(|call| RedisLimiter { inner: Arc::clone(call.inner) });
    Ok((RedisReservation::new(limiters.collect(), reserved, &options), each))
}

/// Calls that are charged all or nothing.
pub(super) struct AllCalls<'a> {
    /// Those on one key as one, with the sum of their costs; without those on unlimited keys.
    pub(super) merged: Vec<LimitedCall<'a>>,
    /// For each call the index of its key, if the key has a limit.
    keys: Vec<Option<usize>>,
}

impl<'a> AllCalls<'a> {
    fn new(calls: &[RedisCall<'a>], at: Option<Time>) -> Result<AllCalls<'a>, VerbError> {
        if calls.len() > CALLS_MAX {
            return Err(VerbError::TooManyCalls(calls.len()));
        }
        let mut merged: Vec<LimitedCall<'a>> = Vec::with_capacity(calls.len());
        let mut key_of = |call: &LimitedCall<'a>| {
            if let Some(index) = merged.iter().position(|other| other.is_same_key(call)) {
                merged[index].cost = merged[index].cost.saturating_add(call.cost);
                return index;
            }
            merged.push(LimitedCall { at, ..call.clone() });
            merged.len() - 1
        };
        let keys = calls.iter().map(|call| call.limited.as_ref().map(&mut key_of)).collect();
        let all = AllCalls { merged, keys };
        all.check()?;
        Ok(all)
    }

    /// Rejects calls that cannot be decided together.
    fn check(&self) -> Result<(), VerbError> {
        let Some(first) = self.merged.first() else { return Ok(()) };
        for call in &self.merged {
            if !call.is_same_store(first) {
                return Err(VerbError::StoresDiffer);
            }
            if let Some(limit) = call.inner.limits.iter().find(|limit| !limit.fits_in_a_list()) {
                let text = limit.to_string();
                let is_smooth = limit.algorithm() == "smooth";
                return Err(if is_smooth { VerbError::Smooth(text) } else { VerbError::CountsDenied(text) });
            }
        }
        let is_paced =
            |call: &&LimitedCall<'_>| call.inner.limits.iter().any(|limit| limit.algorithm() == "pacer");
        let paced = self.merged.iter().find(is_paced);
        let other = paced.and_then(|paced| self.merged.iter().find(|call| slot_of(call) != slot_of(paced)));
        if let (Some(paced), Some(other)) = (paced, other) {
            return Err(VerbError::SlotsDiffer(shown(&paced.key), shown(&other.key)));
        }
        Ok(())
    }

    /// A new receipt for them.
    pub(super) fn receipt(&self) -> StoredReceipt {
        let keys = self.merged.iter().map(|call| ReceiptKey::new(&call.inner.scope, &call.key)).collect();
        let index = |key: &Option<usize>| key.and_then(|key| u8::try_from(key).ok());
        StoredReceipt::of_several(keys, self.keys.iter().map(index).collect())
    }

    /// The decision of each call, from those of the keys.
    fn of_calls(&self, of_keys: &[Decision]) -> Vec<Decision> {
        let of_call = |(index, key): (usize, &Option<usize>)| match key {
            Some(key) => of_keys[*key].of_call(index),
            None => unlimited(COUNT_MAX),
        };
        self.keys.iter().enumerate().map(of_call).collect()
    }

    /// The index of each key's first call.
    pub(super) fn first_calls(&self) -> impl Iterator<Item = usize> {
        let first = |key| self.keys.iter().position(|of_call| *of_call == Some(key)).unwrap_or(0);
        (0..self.merged.len()).map(first)
    }
}

async fn charge_all(
    all: &AllCalls<'_>,
    verb: ScriptVerb<'_>,
) -> Result<(Answer, Vec<Decision>), BackendError> {
    let without_limit = unlimited(COUNT_MAX);
    let Some(first) = all.merged.first() else {
        return Ok((Answer::new(without_limit, Source::Store), vec![without_limit; all.keys.len()]));
    };
    let store = &first.inner.store.inner;
    let slots = slots_of(&all.merged);
    if slots.len() > 1 {
        let decided = by_slot::charge(all, &slots, verb).await;
        let is_answered = !matches!(decided, Err(BackendError::Store(_)));
        store.counters.count(is_answered.then_some(Source::Store));
        let (decision, of_keys) = decided?;
        return Ok((Answer::new(decision, Source::Store), all.of_calls(&of_keys)));
    }
    let reply = async {
        let operations = [Operation { calls: &all.merged, verb }];
        let reply = execute_each(&mut store.admit(1).await?, &operations).await.pop();
        reply.unwrap_or_else(|| Err(bad_state()))
    };
    let decided_all = match reply.await {
        Ok(ScriptReply::TooManyReceipts) => return Err(VerbError::TooManyReceiptsOfKey.into()),
        reply => reply.and_then(|reply| decided(all, verb, reply)),
    };
    store.counters.count(decided_all.is_ok().then_some(Source::Store));
    let (answer, of_keys) = decided_all?;
    Ok((answer, all.of_calls(&of_keys)))
}

/// Recomputes the decisions on the states before the call, for all and for each key.
fn decided(
    all: &AllCalls<'_>,
    verb: ScriptVerb<'_>,
    reply: ScriptReply,
) -> Result<(Answer, Vec<Decision>), StoreFailure> {
    let ScriptReply::Decided { success, now, states } = reply else { return Err(bad_state()) };
    let mut states = states_of(&all.merged, &states, now).ok_or_else(bad_state)?;
    let mut parts = parts_of(&all.merged, &mut states);
    let decision = match verb {
        ScriptVerb::Reserve { options, .. } => all_of::reserve_all(&mut parts, now, options.max_wait).0,
        _ => all_of::check_all(&mut parts, now),
    };
    let limits_of = all.first_calls().zip(all.merged.iter().map(|call| call.inner.encoded.len()));
    let decision = attributed(decision, limits_of);
    require_agreement(success, decision.allowed())?;
    // Each key's own decision: how it stands after the charge, or whether it would be allowed
    // alone, by the same verb.
    let mut of_keys = Vec::with_capacity(all.merged.len());
    let mut rest = parts.as_mut_slice();
    for call in &all.merged {
        let (own, others) = rest.split_at_mut(call.inner.encoded.len());
        if decision.allowed() {
            for part in &mut *own {
                part.cost = 0;
            }
        }
        of_keys.push(match verb {
            ScriptVerb::Reserve { options, .. } if !decision.allowed() => {
                all_of::peek_within_all(own, now, options.max_wait)
            }
            _ => peek_all(own, now),
        });
        rest = others;
    }
    Ok((Answer::new(decision, Source::Store), of_keys))
}

/// The hash slot of a key, if the store is a cluster.
fn slot_of(call: &LimitedCall<'_>) -> Option<u16> {
    call.inner.store.inner.link.is_cluster().then(|| slot(&call.inner.names.receipts(&call.key)))
}

/// The indexes of keys by hash slot, in the order of their first keys. Without a cluster all keys
/// are together.
pub(super) fn slots_of(calls: &[LimitedCall<'_>]) -> Vec<Vec<usize>> {
    let mut slots: Vec<(Option<u16>, Vec<usize>)> = Vec::new();
    for (key, call) in calls.iter().enumerate() {
        let slot = slot_of(call);
        match slots.iter_mut().find(|(other, _)| *other == slot) {
            Some((_, keys)) => keys.push(key),
            None => slots.push((slot, vec![key])),
        }
    }
    slots.into_iter().map(|(_, keys)| keys).collect()
}

/// Decodes the states of all calls.
pub(super) fn states_of(calls: &[LimitedCall<'_>], raw: &[RawState], now: Time) -> Option<Vec<AnyState>> {
    let limits = calls.iter().flat_map(|call| call.inner.encoded.iter().map(move |encoded| (encoded, call)));
    let read = |((encoded, call), raw): ((&crate::encode::EncodedLimit, &LimitedCall<'_>), &RawState)| {
        encoded.read(raw, now, call.inner.preserve_recovery_time)
    };
    let expected = calls.iter().map(|call| call.inner.encoded.len()).sum::<usize>();
    let states: Option<Vec<AnyState>> = limits.zip(raw).map(read).collect();
    states.filter(|states| states.len() == expected)
}

/// The limits of all calls, each with its state and its cost.
pub(super) fn parts_of<'p>(
    calls: &'p [LimitedCall<'_>],
    states: &'p mut [AnyState],
) -> Vec<Part<'p, AnyLimit>> {
    let limits = calls.iter().flat_map(|call| call.inner.compiled.iter().map(|limit| (limit, call.cost)));
    limits.zip(states).map(|((limit, cost), state)| Part { limit, state, cost }).collect()
}
