//! Decides calls: the one path of a check, alone or in a batch, in memory or in a shared store.

use super::RequestError;
use super::call::Call;
use super::decided::Decided;
use sluicegate::Time;
use sluicegate_redis::check_each;

/// Decides calls in order, and hands each decision to `reply`. In memory nothing is awaited. Checks in a shared store that
/// follow each other share a round trip.
pub async fn decide<'c, 'k: 'c>(
    calls: impl Iterator<Item = &'c Call<'k>> + Clone + Send,
    now: Time,
    mut reply: impl FnMut(Result<Decided<'c>, RequestError>) + Send,
) {
    let mut rest = calls;
    loop {
        let mut after = rest.clone();
        let Some(call) = after.next() else { return };
        match call.decide_now(now) {
            Some(decided) => {
                reply(decided);
                rest = after;
            }
            // The futures of the store's client are large: on the heap they do not enlarge every connection.
            None => rest = Box::pin(in_store(rest, now, &mut reply)).await,
        }
    }
}

/// Decides the checks at the front in one round trip, or the call at the front if it is none. Returns the calls after them.
async fn in_store<'c, 'k: 'c, I: Iterator<Item = &'c Call<'k>> + Clone + Send>(
    mut calls: I,
    now: Time,
    reply: &mut (impl FnMut(Result<Decided<'c>, RequestError>) + Send),
) -> I {
    let in_store = calls.clone().map_while(|call| Some((call, call.check_in_store()?)));
    let checks: Vec<_> = in_store.map(|(call, (limiter, time))| time.call(limiter, call, now)).collect();
    if checks.is_empty() {
        if let Some(call) = calls.next() {
            reply(call.decide_alone(now).await);
        }
        return calls;
    }
    let mut answers = check_each(&checks).await.into_iter();
    for call in calls.by_ref().take(checks.len()) {
        // There is an answer for each check; were there none, its caller must not wait for it.
        let answer = answers.next().map_or_else(
            || Err(RequestError::unavailable("the store gave no answer")),
            |answer| answer.map_err(RequestError::from),
        );
        reply(answer.map(|answer| call.decided_in_batch(answer, now)));
    }
    calls
}
