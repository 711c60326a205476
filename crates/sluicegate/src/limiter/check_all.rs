//! Several limiters as one: a user, an address and the whole site, all charged or none.

use super::Limiter;
use super::error::VerbError;
use super::held_receipt::OpenOfSeveral;
use crate::key::Fingerprint;
use crate::limit::Limit;
use crate::store::{AllVerb, NotDecided, StoreCall, decide_all, decide_all_each};
use sluicegate_core::all_of::peek_all;
use sluicegate_core::decision::store::StoreDecision as _;
use sluicegate_core::receipts::Receipt as Name;
use sluicegate_core::{AnyLimit, Decision, Time};

/// The most calls in one [`check_all`]. The shards of all their keys are locked while they are
/// decided.
pub const CALLS_MAX: usize = 64;

/// One of the calls of a [`check_all`]: made by [`Limiter::call`] and
/// [`Gate::call`](crate::Gate::call).
#[derive(Clone, Copy, Debug)]
#[must_use = "pass it to `check_all`"]
pub struct Call<'a> {
    /// `None` if the key has no limit.
    limited: Option<(&'a Limiter, Fingerprint)>,
    cost: u64,
}

impl<'a> Call<'a> {
    pub(crate) fn new(limiter: &'a Limiter, key: Fingerprint, cost: u64) -> Call<'a> {
        Call { limited: Some((limiter, key)), cost }
    }

    /// A call on a key without a limit: it is always allowed and charges nothing. It keeps its
    /// index among the calls, and its number in [`Limiter::settle_each`].
    pub fn unlimited(cost: u64) -> Call<'a> {
        Call { limited: None, cost }
    }

    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    fn in_store(&self, index: usize) -> Option<StoreCall<'a>> {
        let (limiter, key) = self.limited?;
        Some(StoreCall { store: limiter.inner.store.any(), key, cost: self.cost, index })
    }
}

/// The limiters of calls, without those on keys that have no limit.
fn limiters<'a, 'c>(calls: &'c [Call<'a>]) -> impl Iterator<Item = &'a Limiter> + use<'a, 'c> {
    calls.iter().filter_map(|call| Some(call.limited?.0))
}

pub(super) fn now(calls: &[Call<'_>]) -> Time {
    limiters(calls).next().map_or(Time::EPOCH, Limiter::now)
}

/// Decides several calls as one: if all are allowed, all are charged; if one is denied, none is.
/// They are decided at one moment, whatever other threads do and in whatever order the calls are
/// given. The time is that of the first limiter's clock.
///
/// ```
/// use sluicegate::{Limiter, check_all};
///
/// let per_user = Limiter::new("sliding-log 5/60s")?;
/// let per_ip = Limiter::new("token-bucket 10/s burst=50")?;
/// let site = Limiter::new("fixed-window 1000000/day")?;
/// # let ip = std::net::Ipv4Addr::LOCALHOST;
/// let decision = check_all(&[per_user.call("user:42", 1), per_ip.call(ip, 1), site.call((), 1)])?;
/// assert!(decision.allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// If allowed, the fields are those of the limit with the least remaining. If denied, they are
/// those of the limit with the longest `retry_after`: [`Decision::denied_call`] is the index of its
/// call, and [`Decision::denied_by`] its position among the limits of that call. The same key of
/// one limiter given twice is one key with both costs. No calls at all are allowed.
///
/// # Errors
/// If there are more than [`CALLS_MAX`] calls, or one is under `count=all`, where a denied call
/// counts too, or under `smooth`.
pub fn check_all(calls: &[Call<'_>]) -> Result<Decision, VerbError> {
    check_all_at(calls, now(calls))
}

/// Decides several calls as one at a given time: see [`check_all`].
///
/// # Errors
/// As [`check_all`].
pub fn check_all_at(calls: &[Call<'_>], now: Time) -> Result<Decision, VerbError> {
    let in_stores = in_stores(calls)?;
    let behind = longest(&queue_denials(calls, now));
    let decided = decide_all(&in_stores, now, behind, AllVerb::Check);
    let decision = decided.map_err(|error| not_decided(calls, error))?;
    observe(calls, &decision);
    Ok(decision)
}

/// Decides several calls as one, with a decision for each call beside the one for all: how its key
/// stands after the charge, or, if the calls are denied, whether this one would be allowed alone.
///
/// # Errors
/// As [`check_all`].
pub fn check_all_each(calls: &[Call<'_>]) -> Result<(Decision, Vec<Decision>), VerbError> {
    check_all_each_at(calls, now(calls))
}

/// Decides several calls as one at a given time, with a decision for each: see [`check_all_each`].
///
/// # Errors
/// As [`check_all`].
pub fn check_all_each_at(calls: &[Call<'_>], now: Time) -> Result<(Decision, Vec<Decision>), VerbError> {
    let (decision, each) = decide_each(calls, now, AllVerb::Check)?;
    observe(calls, &decision);
    Ok((decision, each))
}

/// Decides calls, with a decision for each.
pub(super) fn decide_each(
    calls: &[Call<'_>],
    now: Time,
    verb: AllVerb,
) -> Result<(Decision, Vec<Decision>), VerbError> {
    let in_stores = in_stores(calls)?;
    let behind = queue_denials(calls, now);
    let decided = decide_all_each(&in_stores, now, longest(&behind), verb);
    let (decision, each) = decided.map_err(|error| not_decided(calls, error))?;
    Ok((decision, each_call(calls, each, behind)))
}

/// Calls the observers. No lock is held.
pub(super) fn observe(calls: &[Call<'_>], decision: &Decision) {
    limiters(calls).for_each(|limiter| limiter.observe(decision));
}

/// A limiter of the store that all calls are in; `None` if no call has a limit.
///
/// # Errors
/// If they are in different stores.
pub(super) fn only_store<'a>(calls: &[Call<'a>]) -> Result<Option<&'a Limiter>, VerbError> {
    let in_stores = in_stores(calls)?;
    let is_other = |call: &StoreCall<'_>| !call.is_same_store(&in_stores[0]);
    if in_stores.iter().any(is_other) { Err(VerbError::StoresDiffer) } else { Ok(limiters(calls).next()) }
}

/// The contents of the receipt of several calls.
pub(super) fn parts(calls: &[Call<'_>], name: Name) -> OpenOfSeveral {
    let mut keys: Vec<Fingerprint> = Vec::new();
    let part = |call: &Call<'_>| {
        let (_, key) = call.limited?;
        let index = keys.iter().position(|other| other.is(key)).unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        });
        // There are at most `CALLS_MAX` calls.
        u8::try_from(index).ok()
    };
    let calls = calls.iter().map(part).collect();
    OpenOfSeveral { name, keys, calls }
}

/// The decision of each call, from those of the calls with a limit: the denial of its key's queue,
/// if it has one.
fn each_call(calls: &[Call<'_>], limited: Vec<Decision>, behind: Vec<Option<Decision>>) -> Vec<Decision> {
    let mut limited = limited.into_iter();
    let alone = calls.iter().map(|call| call.limited.and_then(|_| limited.next()).unwrap_or_else(unlimited));
    alone.zip(behind).map(|(alone, behind)| behind.unwrap_or(alone)).collect()
}

/// The decision of calls without any limit.
pub(super) fn unlimited() -> Decision {
    peek_all::<AnyLimit>(&[], Time::EPOCH)
}

/// A call never overtakes waiters: returns, for each call, the denial of its key's queue, if it has
/// waiters.
fn queue_denials(calls: &[Call<'_>], now: Time) -> Vec<Option<Decision>> {
    let mut with_limit = calls.iter().filter_map(|call| call.limited);
    if !with_limit.any(|(limiter, key)| limiter.queues().may_have_waiters(key)) {
        return vec![None; calls.len()];
    }
    let behind = calls.iter().enumerate().map(|(index, call)| {
        let (limiter, key) = call.limited?;
        Some(limiter.queue_denial(key, call.cost, now)?.of_call(index))
    });
    behind.collect()
}

/// The denial with the longest wait.
pub(super) fn longest(behind: &[Option<Decision>]) -> Option<Decision> {
    let denials = behind.iter().copied().flatten();
    denials.reduce(|longest, next| if next.retry_after() > longest.retry_after() { next } else { longest })
}

/// The calls with a limit.
fn in_stores<'a>(calls: &[Call<'a>]) -> Result<Vec<StoreCall<'a>>, VerbError> {
    if calls.len() > CALLS_MAX {
        return Err(VerbError::TooManyCalls(calls.len()));
    }
    Ok(calls.iter().enumerate().filter_map(|(index, call)| call.in_store(index)).collect())
}

fn not_decided(calls: &[Call<'_>], error: NotDecided) -> VerbError {
    match error {
        NotDecided::CannotCombine(index) => cannot_combine(calls, index),
        NotDecided::NotReserved(error) => error.into(),
    }
}

/// The error of a call that cannot be decided together with others.
fn cannot_combine(calls: &[Call<'_>], index: usize) -> VerbError {
    let limited = calls.get(index).and_then(|call| call.limited);
    // Only a limit that is its limiter's only one can be rejected: a list never contains a limit
    // that cannot be combined with others.
    let limit = limited.and_then(|(limiter, _)| limiter.limits().first().cloned());
    let text = limit.as_ref().map(Limit::to_string).unwrap_or_default();
    match limit {
        Some(limit) if limit.algorithm() == "smooth" => VerbError::Smooth(text),
        _ => VerbError::CountsDenied(text),
    }
}
