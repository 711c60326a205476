//! Several calls, checked or reserved all or nothing.
//!
//! - An unlimited key does not participate; a blocked key denies the request.
//! - A shadow rule never denies: if its limits would, its call is left out and the others are
//!   decided again.
//! - While the shared store is unavailable, the request is denied if one rule fails closed, allowed
//!   if all rules fail open, and an error otherwise. Shadow rules and unlimited keys do not matter
//!   for this. `local` does not apply: a local charge could not be rolled back when another key is
//!   denied.

use super::RequestError;
use super::call::{BLOCKED, RuleCall, UNLIMITED};
use super::decided::{Decided, denied_call};
use super::leases::use_acquire;
use super::receipt::receipt_text;
use super::rule::KeyLimits;
use super::storage::AnyBackend;
use sluicegate::backend::{Answer, BackendError};
use sluicegate::{Call, Decision, Receipt, ReserveOptions, Time, check_all_each_at, reserve_all_each_at};
use sluicegate_core::decision::store::StoreDecision as _;
use sluicegate_redis::{OnStoreFailure, RedisCall};

/// Several calls, decided all or nothing.
#[must_use = "denied calls charge nothing: check `all.allowed()`"]
pub struct DecidedAll<'c> {
    /// The overall decision.
    pub all: Decided<'c>,
    /// One per call: its state after the charge or, if the request was denied, whether the call
    /// alone would have been allowed.
    pub each: Vec<Decided<'c>>,
    /// The receipt of a reservation: see [`ReservedCall::receipt`](super::ReservedCall::receipt).
    pub receipt: Option<String>,
}

/// What a store decided.
struct Charged {
    /// For all calls. A denial names its call by the index in the request.
    answer: Answer,
    /// One decision per participating call.
    each: Vec<Decision>,
    receipt: Option<Receipt>,
}

/// Decides calls all or nothing. With options they are reserved, otherwise checked.
///
/// An allowed request is counted by every rule; a denied one by the rules that denied it or, if
/// none of them did (no room, no store), by every rule.
pub(super) async fn decide_all<'c>(
    calls: &'c [RuleCall<'_>],
    options: Option<&ReserveOptions>,
    now: Time,
) -> Result<DecidedAll<'c>, RequestError> {
    let mut each: Vec<Answer> = Vec::with_capacity(calls.len());
    let mut participants: Vec<usize> = Vec::with_capacity(calls.len());
    let mut blocked = None;
    for (index, call) in calls.iter().enumerate() {
        each.push(match call.key_limits() {
            KeyLimits::Blocked => BLOCKED.of_call(index).into(),
            KeyLimits::Unlimited | KeyLimits::Limits(_) => UNLIMITED.into(),
        });
        match call.key_limits() {
            KeyLimits::Limits(_) => participants.push(index),
            KeyLimits::Blocked if blocked.is_none() && !is_shadow(call) => blocked = Some(index),
            KeyLimits::Blocked | KeyLimits::Unlimited => {}
        }
    }
    let mut receipt = None;
    let all = if let Some(blocked) = blocked {
        for index in participants {
            let RuleCall { key, cost, .. } = calls[index];
            each[index] = of_call(calls[index].limits().peek(key, cost, now).await?, index);
        }
        Decided::new(each[blocked], calls[blocked].denier(), now, false)
    } else {
        loop {
            let charged = charge(calls, &participants, options, now).await?;
            let answer = charged.answer;
            for (index, decision) in participants.iter().zip(charged.each) {
                each[*index] = Answer::new(decision.of_call(*index), answer.source());
            }
            let before = participants.len();
            // After a fallback the store must not be called again: the calls may have been charged.
            if !answer.allowed() && !answer.source().is_fallback() {
                participants.retain(|index| !is_shadow(&calls[*index]) || each[*index].allowed());
            }
            if participants.len() == before {
                receipt = charged.receipt.map(|receipt| receipt_text(&receipt, calls));
                break overall(calls, &participants, answer, now);
            }
        }
    };
    // Denied, but by none of the rules: there is no room for a new key, or no store.
    let by_no_rule = all.denied() && each.iter().all(Answer::allowed);
    for (call, answer) in calls.iter().zip(&each) {
        if by_no_rule {
            call.rule.count(true);
        } else if !all.denied() || !answer.allowed() {
            call.rule.count(!answer.allowed());
        }
    }
    let each = calls.iter().zip(each).map(|(call, answer)| call.decided(answer, now)).collect();
    Ok(DecidedAll { all, each, receipt })
}

/// Attributes a denial to the call at an index of the request.
fn of_call(answer: Answer, index: usize) -> Answer {
    Answer::new(answer.decision().of_call(index), answer.source())
}

fn is_shadow(call: &RuleCall<'_>) -> bool {
    call.rule.spec().shadow
}

/// Charges the participating calls if all of them are allowed. They are all in one store.
async fn charge(
    calls: &[RuleCall<'_>],
    participants: &[usize],
    options: Option<&ReserveOptions>,
    now: Time,
) -> Result<Charged, RequestError> {
    let (mut in_memory, mut in_store, mut at) = (Vec::new(), Vec::new(), None);
    for (index, call) in calls.iter().enumerate() {
        // A call that does not participate has an index, and takes one of the numbers of a settle.
        let participates = participants.contains(&index);
        match &call.limits().backend {
            AnyBackend::Memory(_) if !participates => in_memory.push(Call::unlimited(call.cost)),
            AnyBackend::Memory(limiter) => in_memory.push(limiter.call(call.key, call.cost)),
            AnyBackend::Redis { .. } if !participates => in_store.push(RedisCall::unlimited(call.cost)),
            AnyBackend::Redis { limiter, time } => {
                at = time.at(now);
                in_store.push(limiter.call(call.key, call.cost));
            }
            AnyBackend::Leases(_) => return Err(use_acquire()),
        }
    }
    let of_participants =
        |each: Vec<Decision>| participants.iter().filter_map(|index| each.get(*index).copied()).collect();
    if in_store.is_empty() {
        let (decision, each, receipt) = match options {
            None => {
                let (decision, each) = check_all_each_at(&in_memory, now)?;
                (decision, each, None)
            }
            Some(options) => {
                let (reservation, each) = reserve_all_each_at(&in_memory, options, now)?;
                (reservation.decision(), each, reservation.keep())
            }
        };
        return Ok(Charged { answer: decision.into(), each: of_participants(each), receipt });
    }
    match charge_in_store(&in_store, options, at).await.map_err(RequestError::from) {
        Ok((answer, each, receipt)) => Ok(Charged { answer, each: of_participants(each), receipt }),
        Err(error) if error.is_store_failure() => {
            // The fallback of a shadow rule does not count.
            let deciding = participants.iter().filter(|index| !is_shadow(&calls[**index]));
            let on_failure = |index: &usize| calls[*index].rule.on_failure();
            let answer = OnStoreFailure::answer_all(deciding.clone().map(on_failure)).ok_or(error)?;
            let closed = deciding.clone().find(|index| on_failure(index) == OnStoreFailure::Deny);
            let each = vec![answer.decision(); participants.len()];
            Ok(Charged { answer: of_call(answer, closed.copied().unwrap_or(0)), each, receipt: None })
        }
        Err(error) => Err(error),
    }
}

async fn charge_in_store(
    calls: &[RedisCall<'_>],
    options: Option<&ReserveOptions>,
    at: Option<Time>,
) -> Result<(Answer, Vec<Decision>, Option<Receipt>), BackendError> {
    let Some(options) = options else {
        let (answer, each) = match at {
            None => Box::pin(sluicegate_redis::check_all(calls)).await?,
            Some(now) => Box::pin(sluicegate_redis::check_all_at(calls, now)).await?,
        };
        return Ok((answer, each, None));
    };
    let (reservation, each) = match at {
        None => Box::pin(sluicegate_redis::reserve_all_each(calls, options)).await?,
        Some(now) => Box::pin(sluicegate_redis::reserve_all_each_at(calls, options, now)).await?,
    };
    Ok((reservation.answer(), each, reservation.keep()))
}

/// The overall answer: if allowed, that of all limits together; if denied, that of the call with
/// the longest retry time, the first on a tie. If there is no room for a new key, or no store, no
/// limit denied it.
fn overall<'c>(calls: &'c [RuleCall<'_>], participants: &[usize], answer: Answer, now: Time) -> Decided<'c> {
    match denied_call(&answer).and_then(|index| calls.get(index)) {
        Some(call) => Decided::new(answer, call.denier(), now, false),
        None if participants.is_empty() => Decided::of_calls(UNLIMITED.into(), now),
        None => Decided::of_calls(answer, now),
    }
}
