//! Several calls as one: all are charged, or none.

use super::ask::{TRIPS_MAX, add_time, keeps_changing};
use super::{RedisLimiter, not_understood, same};
use crate::answer::{Answer, Source};
use crate::failure::StoreFailure;
use crate::limiter::error::TogetherError;
use crate::link::slot;
use crate::reply::Reply;
use crate::script::Trip;
use crate::scripts;
use sluicegate::core::several::{self, Part, peek_all};
use sluicegate::core::{AnyLimit, AnyState};
use sluicegate::{Decision, Time};
use std::sync::Arc;

/// The most calls that can be charged together.
pub const CALLS_MAX: usize = sluicegate::CALLS_MAX;

/// One call of several: made by [`RedisLimiter::on`].
#[derive(Clone, Copy, Debug)]
#[must_use = "hand it to `check_all` or `check_each`"]
pub struct Call<'a> {
    pub(super) limiter: &'a RedisLimiter,
    pub(super) key: &'a [u8],
    pub(super) cost: u32,
    pub(super) at: Option<Time>,
}

impl<'a> Call<'a> {
    pub(super) fn new(limiter: &'a RedisLimiter, key: &'a [u8], cost: u32) -> Call<'a> {
        Call { limiter, key, cost, at: None }
    }

    /// The same call at a time of the caller's, for tests and replays with [`check_each`](crate::check_each).
    pub fn at(self, now: Time) -> Call<'a> {
        Call { at: Some(now), ..self }
    }

    /// What the limiter answers when the store is not even asked: as after any failure of it.
    ///
    /// # Errors
    /// The failure, if the limiter is not to answer without the store.
    pub fn without_store(&self, failure: StoreFailure) -> Result<Answer, StoreFailure> {
        self.limiter.inner.answered(Err(failure), |fallback| fallback.check(self.key, self.cost))
    }

    pub(super) fn is_same_key(&self, other: &Call<'_>) -> bool {
        let (own, others) = (&self.limiter.inner, &other.limiter.inner);
        self.key == other.key
            && own.scope == others.scope
            && Arc::ptr_eq(&own.store.inner, &others.store.inner)
    }
}

/// May all of these happen now? If so all are charged; if one denies, none is. The answer for all, and for each: how its key
/// stands after the charge, or else whether the call would be allowed by itself.
///
/// In a cluster the keys have to be in one slot: those of one caller are, and those that share a hash tag such as `{acme}`.
/// The same key of one scope named twice is one key with both costs.
///
/// # Errors
/// With too many calls, with one under `count=all` or `smooth`, when keys are in different slots of a cluster, or when the store gives no
/// answer. Then none is charged, unless the failure says that it may have been. (A limiter's `on_store_failure` is not asked:
/// calls that belong together may differ in it.)
pub async fn check_all(
    calls: &[Call<'_>],
    now: Option<Time>,
) -> Result<(Answer, Vec<Decision>), TogetherError> {
    if calls.len() > CALLS_MAX {
        return Err(TogetherError::TooMany(calls.len()));
    }
    let merged = merged(calls);
    let Some(first) = merged.first() else {
        return Ok((
            Answer::new(Decision::let_pass(sluicegate::core::bounds::COUNT_MAX), Source::Store),
            Vec::new(),
        ));
    };
    let store = &first.limiter.inner.store;
    let mut names: Vec<Vec<u8>> = Vec::new();
    for call in &merged {
        let inner = &*call.limiter.inner;
        inner.bounded(now)?;
        if !Arc::ptr_eq(&inner.store.inner, &store.inner) {
            return Err(TogetherError::StoresDiffer);
        }
        if let Some(limit) = inner.limits.iter().find(|limit| !limit.fits_in_a_list()) {
            let text = limit.to_string();
            let is_smooth = limit.algorithm() == "smooth";
            return Err(if is_smooth {
                TogetherError::Smooth(text)
            } else {
                TogetherError::CountsDenied(text)
            });
        }
        names.extend(inner.states(call.key));
    }
    if store.inner.link.is_cluster() {
        let home = slot(&names[0]);
        let away = merged
            .iter()
            .find(|call| call.limiter.inner.states(call.key).first().is_some_and(|name| slot(name) != home));
        if let Some(away) = away {
            return Err(TogetherError::SlotsDiffer(shown(first.key), shown(away.key)));
        }
    }
    let until = first.limiter.inner.until();
    let trip = || {
        let mut trip = Trip::new(&scripts::VERBS, &names);
        add_time(&mut trip, now);
        trip.arg("check").arg(names.len()).arg(0).arg("").arg("");
        for call in &merged {
            for shape in &call.limiter.inner.shapes {
                shape.add_block(&mut trip, call.cost, now);
            }
        }
        trip
    };
    for _ in 0..TRIPS_MAX {
        match Reply::read(store.inner.go(&trip(), until).await?)? {
            Reply::Done { yes, now, told } => return decided(calls, &merged, yes, now, &told),
            Reply::Ask { now } => {
                for shape in merged.iter().flat_map(|call| &call.limiter.inner.shapes) {
                    shape.learn_windows(now);
                }
            }
            Reply::Other { now: at, state, mut place } => {
                for call in &merged {
                    let inner = &*call.limiter.inner;
                    if place < inner.shapes.len() {
                        inner.replace(call.key, place, &state, at, now, until).await?;
                        break;
                    }
                    place -= inner.shapes.len();
                }
            }
            Reply::Full => return Err(not_understood().into()),
        }
    }
    Err(keeps_changing().into())
}

/// What the core says of the states as they were.
fn decided(
    calls: &[Call<'_>],
    merged: &[Call<'_>],
    yes: bool,
    now: Time,
    told: &[super::Told],
) -> Result<(Answer, Vec<Decision>), TogetherError> {
    let shapes =
        merged.iter().flat_map(|call| call.limiter.inner.shapes.iter().map(move |shape| (shape, call.cost)));
    let shapes: Vec<_> = shapes.collect();
    let states: Option<Vec<AnyState>> =
        shapes.iter().zip(told).map(|((shape, _), told)| shape.read(told, now, false)).collect();
    let mut states = states.filter(|states| states.len() == shapes.len()).ok_or_else(not_understood)?;
    let mut parts: Vec<Part<'_, AnyLimit>> = shapes
        .iter()
        .zip(&mut states)
        .map(|((shape, cost), state)| Part { limit: &shape.limit, state, cost: *cost })
        .collect();
    let decision = several::check_all(&mut parts, now);
    same(yes, decision.allowed())?;
    // Of each call: it is charged, so that what is left to tell is how the key stands; or whether it would be by itself.
    let mut each = Vec::with_capacity(merged.len());
    let mut rest = parts.as_mut_slice();
    for call in merged {
        let (own, others) = rest.split_at_mut(call.limiter.inner.shapes.len());
        if decision.allowed() {
            for part in &mut *own {
                part.cost = 0;
            }
        }
        each.push(peek_all(own, now));
        rest = others;
    }
    let place = |call: &Call<'_>| merged.iter().position(|other| other.is_same_key(call));
    let each = calls.iter().filter_map(|call| Some(each[place(call)?])).collect();
    Ok((Answer::new(decision, Source::Store), each))
}

/// The same scope and key twice is one call with both costs.
fn merged<'a>(calls: &[Call<'a>]) -> Vec<Call<'a>> {
    let mut merged: Vec<Call<'a>> = Vec::with_capacity(calls.len());
    for call in calls {
        match merged.iter_mut().find(|other| other.is_same_key(call)) {
            Some(other) => other.cost = other.cost.saturating_add(call.cost),
            None => merged.push(*call),
        }
    }
    merged
}

/// A key in a message.
fn shown(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&key[..key.len().min(64)]))
}
