//! Several calls as one: all are charged, or none.
//!
//! A key without limits takes no part, and a blocked one denies all. A shadow rule never denies: if it would, its call is
//! left out and the others are decided again.
//!
//! While a shared store is unavailable, the rules may differ in their fallback: one that fails closed denies all, and all
//! are allowed only if all fail open. Shadow rules and keys without limits have no say in that. Deciding locally is for one
//! key at a time: a charge here could not be returned for a denial there.

use super::RequestError;
use super::call::{BLOCKED, Call, UNLIMITED};
use super::decided::Decided;
use super::leases::use_acquire;
use super::rule::Policy;
use super::storage::AnyBackend;
use sluicegate::backend::Answer;
use sluicegate::{Decision, Time, check_all_each_at};
use sluicegate_redis::OnStoreFailure;

/// Decides calls all or nothing. Returns the answer for all, and for each: how its key stands after the charge, or if all
/// are denied whether the call would be allowed by itself. The rules that denied count it; all do if it was allowed, or
/// denied by none of them.
pub(super) async fn check_all<'c>(
    calls: &'c [Call<'_>],
    now: Time,
) -> Result<(Decided<'c>, Vec<Decided<'c>>), RequestError> {
    let mut each: Vec<Answer> = Vec::with_capacity(calls.len());
    let mut taking_part: Vec<usize> = Vec::with_capacity(calls.len());
    let mut blocked = false;
    for (place, call) in calls.iter().enumerate() {
        each.push(match call.policy() {
            Policy::Blocked => BLOCKED.into(),
            Policy::Unlimited | Policy::Limits(_) => UNLIMITED.into(),
        });
        match call.policy() {
            Policy::Limits(_) => taking_part.push(place),
            Policy::Blocked => blocked |= !is_shadow(call),
            Policy::Unlimited => {}
        }
    }
    let all = if blocked {
        for place in taking_part {
            let Call { key, cost, .. } = calls[place];
            each[place] = calls[place].limits().peek(key, cost, now).await?;
        }
        Decided::new(BLOCKED.into(), Policy::Blocked, now, false)
    } else {
        loop {
            let (answer, decisions) = charge(calls, &taking_part, now).await?;
            for (place, decision) in taking_part.iter().zip(decisions) {
                each[*place] = Answer::new(decision, answer.source());
            }
            let before = taking_part.len();
            // After an answer without the store it may not be asked again: the calls may have been charged.
            if !answer.allowed() && !answer.source().is_fallback() {
                taking_part.retain(|place| !is_shadow(&calls[*place]) || each[*place].allowed());
            }
            if taking_part.len() == before {
                break overall(calls, &taking_part, &each, answer, now);
            }
        }
    };
    // Denied, but by no rule: there is no room for a new key, or no store.
    let by_no_rule = all.denied() && each.iter().all(Answer::allowed);
    for (call, answer) in calls.iter().zip(&each) {
        if by_no_rule {
            call.rule.count(true);
        } else if !all.denied() || !answer.allowed() {
            call.rule.count(!answer.allowed());
        }
    }
    let each = calls.iter().zip(each).map(|(call, answer)| call.decided(answer, now)).collect();
    Ok((all, each))
}

fn is_shadow(call: &Call<'_>) -> bool {
    call.rule.spec().shadow
}

/// Charges the calls that take part if all of them are allowed. All of them are in one store.
async fn charge(
    calls: &[Call<'_>],
    taking_part: &[usize],
    now: Time,
) -> Result<(Answer, Vec<Decision>), RequestError> {
    let (mut in_memory, mut in_store, mut at) = (Vec::new(), Vec::new(), None);
    for call in taking_part.iter().map(|place| &calls[*place]) {
        match &call.limits().backend {
            AnyBackend::Memory(limiter) => in_memory.push(limiter.call(call.key, call.cost)),
            AnyBackend::Redis { limiter, time } => {
                at = time.at(now);
                in_store.push(limiter.call(call.key, call.cost));
            }
            AnyBackend::Leases(_) => return Err(use_acquire()),
        }
    }
    if in_store.is_empty() {
        let (decision, decisions) = check_all_each_at(&in_memory, now)?;
        return Ok((decision.into(), decisions));
    }
    let charged = match at {
        None => Box::pin(sluicegate_redis::check_all(&in_store)).await,
        Some(now) => Box::pin(sluicegate_redis::check_all_at(&in_store, now)).await,
    };
    match charged.map_err(RequestError::from) {
        Err(mistake) if mistake.is_of_store() => {
            // Shadow rules have no say.
            let deciding = taking_part.iter().map(|place| &calls[*place]).filter(|call| !is_shadow(call));
            let answer = OnStoreFailure::answer_all(deciding.map(|call| call.rule.on_failure()));
            let answer = answer.ok_or(mistake)?;
            Ok((answer, vec![answer.decision(); taking_part.len()]))
        }
        charged => charged,
    }
}

/// The answer for all. Allowed, it is what the limits said together; denied, it is that of the call that is denied for
/// longest, the first of equals.
fn overall<'c>(
    calls: &'c [Call<'_>],
    taking_part: &[usize],
    each: &[Answer],
    answer: Answer,
    now: Time,
) -> Decided<'c> {
    if taking_part.is_empty() {
        return Decided::new(UNLIMITED.into(), Policy::Unlimited, now, false);
    }
    let denied = taking_part.iter().copied().filter(|place| !answer.allowed() && !each[*place].allowed());
    let longest =
        denied.reduce(
            |longest, next| {
                if each[next].retry_after() > each[longest].retry_after() { next } else { longest }
            },
        );
    match longest {
        Some(place) => Decided::new(each[place], calls[place].policy(), now, false),
        // Allowed; or no limit denied it, as there is no room for a new key, or no store.
        None => Decided::new(answer, Policy::Unlimited, now, false),
    }
}
