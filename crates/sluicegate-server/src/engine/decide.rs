//! Decides calls. Every check takes this path, alone or in a batch, in memory or in a shared store.
//!
//! A check in memory is decided in place: no future, no allocation. Consecutive checks in a shared
//! store are sent together and share one round trip. Replies keep the order of the calls, and each
//! call sees the charges of those before it.

use super::RequestError;
use super::call::RuleCall;
use super::decided::Decided;
use sluicegate::Time;
use sluicegate_redis::check_each;

/// Decides calls in order and passes each decision to `reply`.
pub async fn decide<'c, 'k: 'c>(
    calls: impl Iterator<Item = &'c RuleCall<'k>> + Clone + Send,
    now: Time,
    mut reply: impl FnMut(Result<Decided<'c>, RequestError>) + Send,
) {
    let mut rest = calls;
    loop {
        let mut after = rest.clone();
        let Some(call) = after.next() else { return };
        match call.decide_in_memory(now) {
            Some(decided) => {
                reply(decided);
                rest = after;
            }
            // Boxed because the store client's futures are large: unboxed, they would make the task
            // of every connection as large, even of those that never need the store.
            None => rest = Box::pin(decide_in_store(rest, now, &mut reply)).await,
        }
    }
}

/// Decides the leading checks in one round trip. If the first call is not a check, decides only
/// that call. Returns the remaining calls.
async fn decide_in_store<'c, 'k: 'c, I: Iterator<Item = &'c RuleCall<'k>> + Clone + Send>(
    mut calls: I,
    now: Time,
    reply: &mut (impl FnMut(Result<Decided<'c>, RequestError>) + Send),
) -> I {
    let in_store = calls.clone().map_while(|call| Some((call, call.check_in_store()?)));
    let checks: Vec<_> =
        in_store.map(|(call, (limiter, time))| time.call(limiter, call.key, call.cost, now)).collect();
    if checks.is_empty() {
        if let Some(call) = calls.next() {
            reply(call.decide_alone(now).await);
        }
        return calls;
    }
    let mut answers = check_each(&checks).await.into_iter();
    for call in calls.by_ref().take(checks.len()) {
        // `check_each` returns one answer per check. If it did not, the client must still get a
        // reply.
        let answer = answers.next().map_or_else(
            || Err(RequestError::unavailable("the store did not answer")),
            |answer| answer.map_err(RequestError::from),
        );
        reply(answer.map(|answer| call.decided_in_batch(answer, now)));
    }
    calls
}
