//! Independent checks in one trip.

use super::ask::{TRIPS_MAX, keeps_changing};
use super::together::Call;
use crate::answer::Answer;
use crate::failure::StoreFailure;
use crate::reply::Reply;
use crate::script::Trip;
use sluicegate::{Decision, Time};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Makes independent checks in one trip, all in one store; an answer for each. On one key they are decided in this order: where
/// one key comes under limits that have changed in between, what follows takes a trip of its own.
pub async fn check_each(calls: &[Call<'_>]) -> Vec<Result<Answer, StoreFailure>> {
    let Some(first) = calls.first() else { return Vec::new() };
    // One deadline for all, however many trips it takes.
    let until = first.limiter.inner.until();
    let mut answers = Vec::with_capacity(calls.len());
    let mut left = calls;
    while !left.is_empty() {
        let (along, rest) = left.split_at(go_along(left));
        answers.extend(check_along(along, until).await);
        left = rest;
    }
    answers
}

/// How many calls from the first on can be sent together: a state in other numbers is written anew between two trips, so no key
/// may come under other limits than before.
fn go_along(calls: &[Call<'_>]) -> usize {
    let Some(first) = calls.first() else { return 0 };
    if calls.iter().all(|call| Arc::ptr_eq(&call.limiter.inner, &first.limiter.inner)) {
        return calls.len();
    }
    let mut limiters = HashMap::new();
    for (place, call) in calls.iter().enumerate() {
        let inner = &call.limiter.inner;
        let known = *limiters.entry((inner.scope.as_str(), call.key)).or_insert(inner);
        if !Arc::ptr_eq(known, inner) {
            return place;
        }
    }
    calls.len()
}

async fn check_along(calls: &[Call<'_>], until: Instant) -> Vec<Result<Answer, StoreFailure>> {
    let Some(first) = calls.first() else { return Vec::new() };
    let store = &first.limiter.inner.store;
    let began = Instant::now();
    // What is elsewhere is asked in its turn.
    let goes_along = |call: &Call<'_>| {
        let inner = &call.limiter.inner;
        inner.bounded(call.at).is_ok() && Arc::ptr_eq(&inner.store.inner, &store.inner)
    };
    let mut answers: Vec<Option<Result<Answer, StoreFailure>>> = Vec::with_capacity(calls.len());
    for call in calls {
        answers.push(if goes_along(call) {
            call.limiter.inner.remembered(call.key, call.cost, call.at).map(Ok)
        } else {
            Some(call.limiter.check_or_at(call.key, call.cost, call.at).await)
        });
    }
    let mut left: Vec<usize> = (0..calls.len()).filter(|place| answers[*place].is_none()).collect();
    for _ in 0..TRIPS_MAX {
        if left.is_empty() {
            break;
        }
        let trips: Vec<Trip> = left.iter().map(|place| calls[*place].trip()).collect();
        let replies = store.inner.go_each(&trips, until).await;
        let mut again = Again::default();
        for (place, reply) in left.drain(..).zip(replies) {
            let call = &calls[place];
            let asked = match reply.and_then(Reply::read) {
                Ok(reply) => match again.unless_done(calls, place, reply) {
                    Some(done) => call.limiter.inner.decided(done, call.cost),
                    None => continue,
                },
                Err(failure) => Err(failure),
            };
            answers[place] = Some(call.answered(asked, began));
        }
        if let Err((place, failure)) = again.prepare(calls, until).await {
            answers[place] = Some(calls[place].answered(Err(failure), began));
        }
        left = again.places.into_iter().filter(|place| answers[*place].is_none()).collect();
    }
    let answers = answers.into_iter().zip(calls);
    answers
        .map(|(answer, call)| answer.unwrap_or_else(|| call.answered(Err(keeps_changing()), began)))
        .collect()
}

impl Call<'_> {
    fn trip(&self) -> Trip {
        self.limiter.inner.check_trip(self.key, self.cost, self.at)
    }

    /// What the store said, or what is answered without it.
    fn answered(
        &self,
        asked: Result<Decision, StoreFailure>,
        began: Instant,
    ) -> Result<Answer, StoreFailure> {
        let inner = &self.limiter.inner;
        inner.remember(self.key, self.cost, self.at, began, &asked);
        inner.answered(asked, |fallback| fallback.check(self.key, self.cost))
    }
}

/// Calls that came back without having been decided, and what they need before they are sent again.
#[derive(Default)]
struct Again {
    places: Vec<usize>,
    /// States in other numbers, of one call for each.
    others: Vec<(usize, Other)>,
}

/// A state in other numbers.
struct Other {
    now: Time,
    state: Vec<u8>,
    place: usize,
}

impl Again {
    /// The reply if it is a decision. Otherwise the call is noted.
    fn unless_done(&mut self, calls: &[Call<'_>], at: usize, reply: Reply) -> Option<Reply> {
        let call = &calls[at];
        match reply {
            Reply::Ask { now } => {
                for shape in &call.limiter.inner.shapes {
                    shape.learn_windows(now);
                }
            }
            Reply::Other { now, state, place } => self.others.push((at, Other { now, state, place })),
            // What costs nothing reads a state in any numbers, so it has overtaken a call of its key that came back. It has
            // changed nothing and can be asked again.
            _ if call.cost == 0 && self.places.iter().any(|before| calls[*before].is_same_key(call)) => {}
            done => return Some(done),
        }
        self.places.push(at);
        None
    }

    /// Writes states in other numbers anew, each once. The call at which that failed, if it did.
    async fn prepare(&mut self, calls: &[Call<'_>], until: Instant) -> Result<(), (usize, StoreFailure)> {
        let mut done: Vec<(usize, usize)> = Vec::new();
        for (at, Other { now, state, place }) in self.others.drain(..) {
            let call = &calls[at];
            if done.iter().any(|(other, written)| calls[*other].is_same_key(call) && *written == place) {
                continue;
            }
            let replaced = call.limiter.inner.replace(call.key, place, &state, now, call.at, until).await;
            replaced.map_err(|failure| (at, failure))?;
            done.push((at, place));
        }
        Ok(())
    }
}
