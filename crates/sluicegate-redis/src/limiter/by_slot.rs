//! Several calls over the hash slots of a cluster, which no script can span: each slot is reserved
//! for a short time, and confirmed once all are.
//!
//! ```text
//! reserve:  one script call per slot, with a time to live after which the charge is returned
//!   all allowed ──▶ confirm: the charges stay ──▶ all confirmed: allowed
//!   one denied  ──▶ cancel: what the others charged is returned
//! ```
//!
//! Promises:
//! - **No limit is ever exceeded**: each slot is charged before the call is allowed, and the call
//!   is allowed only after every charge was confirmed before its time to live ended.
//! - **A slot that cannot be confirmed** fails the calls, and what the others charged is returned.
//! - **A process that dies in between** leaves charges that are returned when they expire: after
//!   [`SLOT_TTL_MIN`], or four deadlines if that is longer. Those that it had confirmed stay.
//! - Meanwhile another call may be denied by a charge that is returned later.

use super::call::LimitedCall;
use super::reply::ScriptReply;
use super::require_agreement;
use super::script_calls::{Operation, ScriptVerb, execute_each};
use super::several::{AllCalls, parts_of, states_of};
use crate::failure::bad_state;
use crate::store;
use sluicegate::backend::{BackendError, StoreFailure};
use sluicegate::{Decision, ReserveOptions, Span, Ttl, VerbError};
use sluicegate_core::all_of::{self, together};
use sluicegate_core::decision::store::StoreDecision as _;
use std::time::Duration;

/// For how long a slot is reserved, at least.
const SLOT_TTL_MIN: Duration = Duration::from_secs(1);

/// Charges calls whose keys are in several slots. Returns the decision for all, and one for each
/// key: how it stands after the charge, or, if the calls are denied, whether this one would be
/// allowed alone.
pub(super) async fn charge(
    all: &AllCalls<'_>,
    slots: &[Vec<usize>],
    verb: ScriptVerb<'_>,
) -> Result<(Decision, Vec<Decision>), BackendError> {
    let calls: Vec<Vec<LimitedCall<'_>>> =
        slots.iter().map(|keys| keys.iter().map(|key| all.merged[*key].clone()).collect()).collect();
    let store = &all.merged[0].inner.store.inner;
    // Slots may be cancelled under any verb.
    let _invalidate: Vec<_> =
        all.merged.iter().map(|call| call.inner.invalidate_denials(&call.key)).collect();
    let own_receipt;
    let (receipt, options) = if let ScriptVerb::Reserve { receipt, options } = verb {
        (receipt, options)
    } else {
        own_receipt = all.receipt();
        (&own_receipt, ReserveOptions::default())
    };
    let length = SLOT_TTL_MIN.max(4 * store.settings.deadline);
    let reserve = ScriptVerb::Reserve { receipt, options: options.ttl(Ttl::cancel(length)) };
    let reserved = execute_all(store, &calls, reserve).await;
    let decided = decided(all, slots, &calls, reserved, options.max_wait);
    match &decided {
        Ok((decision, _)) if decision.allowed() => {}
        // What is not cancelled is returned when it expires.
        _ => drop(execute_all(store, &calls, ScriptVerb::Cancel { receipt }).await),
    }
    let (decision, of_keys) = decided?;
    if decision.allowed() {
        let confirm = match verb {
            ScriptVerb::Reserve { .. } => ScriptVerb::Confirm { receipt, ttl: options.ttl },
            _ => ScriptVerb::Settle { receipt },
        };
        let replies = execute_all(store, &calls, confirm).await;
        if let Err(failure) = replies.into_iter().try_for_each(confirmed) {
            // The caller gets no receipt, so the slots that are confirmed would stay charged.
            drop(execute_all(store, &calls, ScriptVerb::Cancel { receipt }).await);
            return Err(failure.into());
        }
    }
    Ok((decision, of_keys))
}

/// Executes one call per slot, on all nodes at once.
async fn execute_all(
    store: &store::Inner,
    calls: &[Vec<LimitedCall<'_>>],
    verb: ScriptVerb<'_>,
) -> Vec<Result<ScriptReply, StoreFailure>> {
    let operations: Vec<Operation<'_>> = calls.iter().map(|calls| Operation { calls, verb }).collect();
    let mut round_trip = match verb {
        ScriptVerb::Reserve { .. } => match store.admit(calls.len()).await {
            Ok(round_trip) => round_trip,
            Err(failure) => return vec![Err(failure); calls.len()],
        },
        _ => store.admit_return(calls.len()).await,
    };
    execute_each(&mut round_trip, &operations).await
}

/// Recomputes the decisions on the states before the calls. The nodes have clocks of their own.
fn decided(
    all: &AllCalls<'_>,
    slots: &[Vec<usize>],
    calls: &[Vec<LimitedCall<'_>>],
    replies: Vec<Result<ScriptReply, StoreFailure>>,
    max_wait: Span,
) -> Result<(Decision, Vec<Decision>), BackendError> {
    let first_calls: Vec<usize> = all.first_calls().collect();
    let mut of_keys: Vec<(usize, Decision, Decision)> = Vec::with_capacity(all.merged.len());
    for ((keys, calls), reply) in slots.iter().zip(calls).zip(replies) {
        let (success, now, states) = match reply? {
            ScriptReply::Decided { success, now, states } => (success, now, states),
            ScriptReply::TooManyReceipts => return Err(VerbError::TooManyReceiptsOfKey.into()),
            _ => return Err(bad_state().into()),
        };
        let mut states = states_of(calls, &states, now).ok_or_else(bad_state)?;
        let mut rest = states.as_mut_slice();
        let mut is_allowed = true;
        for (call, &key) in calls.iter().zip(keys) {
            let (own, others) = rest.split_at_mut(call.inner.encoded.len());
            rest = others;
            let one = std::slice::from_ref(call);
            let alone = all_of::peek_all(&parts_of(one, own), now);
            let decision = all_of::reserve_all(&mut parts_of(one, own), now, max_wait).0;
            is_allowed &= decision.allowed();
            of_keys.push((key, decision.of_call(first_calls[key]), alone));
        }
        require_agreement(success, is_allowed)?;
    }
    of_keys.sort_by_key(|(key, ..)| *key);
    let decision = together(of_keys.iter().map(|(_, decision, _)| *decision)).ok_or_else(bad_state)?;
    let of_key = |(_, charged, alone): (usize, Decision, Decision)| {
        if decision.allowed() { charged } else { alone }
    };
    Ok((decision, of_keys.into_iter().map(of_key).collect()))
}

/// Fails if the charges of a slot were returned, or voided by a reset, before it was confirmed.
fn confirmed(reply: Result<ScriptReply, StoreFailure>) -> Result<(), StoreFailure> {
    match reply? {
        ScriptReply::Decided { success: true, .. } => Ok(()),
        _ => Err(StoreFailure::BadReply(String::from(
            "a hash slot was not confirmed in time, or a key was reset meanwhile; check the nodes' latency",
        ))),
    }
}
