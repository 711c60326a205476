//! A list of limits as one: a call is charged to all of them, or to none.
//!
//! ```text
//! Allowed    if every limit allows the call. All are charged. limit, remaining and reset_after are
//!            those of the limit with the least remaining (the first on a tie); delay is the
//!            longest.
//! Denied     if any limit denies the call. None is charged. All fields are those of the limit with
//!            the longest retry_after (`never` is the longest of all; the first on a tie).
//! ```
//!
//! A [`Part`] is one limit on one key's state with its own cost. The limits of a list on one key
//! have equal costs; calls on several keys may differ.

use crate::algorithm::{Algorithm, Verb};
use crate::decision::store::StoreDecision as _;
use crate::decision::{Decision, Standing};
use crate::rollback::Charge;
use crate::time::{Span, Time};
use crate::usage::Usage;
use crate::verbs::{Unsupported, Verbs as _};
use alloc::vec::Vec;

/// One limit, one key's state and the cost of the call there.
#[derive(Debug)]
pub struct Part<'a, A: Algorithm> {
    /// The limit.
    pub limit: &'a A,
    /// The key's state under it.
    pub state: &'a mut A::State,
    /// The cost of the call there.
    pub cost: u64,
}

/// Checks limits on one or more keys: the calls are allowed and charged everywhere, or nowhere.
///
/// Limits with `count=all` must not be among them: here a denial changes nothing.
pub fn check_all<A: Algorithm>(parts: &mut [Part<'_, A>], now: Time) -> Decision {
    let peeked = peek_all(parts, now);
    if !peeked.allowed() {
        return peeked;
    }
    for part in parts.iter_mut().filter(|part| part.cost > 0) {
        part.limit.charge(part.state, now, part.cost);
    }
    Decision::allow(standing_of(parts, now), peeked.delay())
}

/// Returns the decision with the call that was denied and the position in its own list of limits,
/// given the index of each call and how many parts it has. The position was over all parts.
pub fn attributed(decision: Decision, calls: impl IntoIterator<Item = (usize, usize)>) -> Decision {
    let parts_of = |(index, parts)| (0..parts).map(move |position| (index, position));
    attributed_to_part(decision, calls.into_iter().flat_map(parts_of))
}

/// Like [`attributed`], given for each part the index of its call and its position in the list.
pub fn attributed_to_part(decision: Decision, parts: impl IntoIterator<Item = (usize, usize)>) -> Decision {
    let part = decision.denied_by().and_then(|denied_by| usize::try_from(denied_by).ok());
    let denied = part.and_then(|part| parts.into_iter().nth(part));
    let Some((call, Ok(position))) = denied.map(|(call, position)| (call, u32::try_from(position))) else {
        return decision;
    };
    decision.by_limit(position).of_call(call)
}

/// Decides whether [`check_all`] would allow these calls. Charges nothing.
pub fn peek_all<A: Algorithm>(parts: &[Part<'_, A>], now: Time) -> Decision {
    let decisions = parts.iter().map(|part| part.limit.peek(part.state, now, part.cost));
    strictest(decisions).map_or_else(|denied| denied, |delay| Decision::allow(standing_of(parts, now), delay))
}

/// Returns the decision for calls that were decided apart from each other, in their order: allowed
/// if all are. The fields are those that one decision for all of them would have.
pub fn together(decisions: impl IntoIterator<Item = Decision>) -> Option<Decision> {
    decisions.into_iter().reduce(|one, next| match (one.retry_after(), next.retry_after()) {
        (None, None) => {
            let tightest = if next.remaining() < one.remaining() { next } else { one };
            Decision::allow(tightest.standing(), one.delay().max(next.delay()))
        }
        // `None` is less than any wait.
        (longest, longer) if longer > longest => next,
        _ => one,
    })
}

fn standing_of<A: Algorithm>(parts: &[Part<'_, A>], now: Time) -> Standing {
    tightest(parts.iter().map(|part| part.limit.standing(part.state, now)))
}

/// Checks a list of limits on one key, each with its own state: the call is charged to all, or to
/// none.
///
/// # Panics
/// If there is not one state per limit.
pub fn check_list<A: Algorithm>(limits: &[A], states: &mut [A::State], now: Time, cost: u64) -> Decision {
    // The common case needs no second pass, and may record a denied call (`count=all`).
    if let ([limit], [state]) = (limits, &mut *states) {
        return limit.check(state, now, cost);
    }
    let denies =
        |(limit, state): (&A, &A::State)| !limit.admits(state, now, cost, limit.remaining(state, now));
    if cost == 0 || limits.len() != states.len() || limits.iter().zip(&*states).any(denies) {
        return peek_list(limits, states, now, cost);
    }
    let mut longest_delay = Span::ZERO;
    let charged = limits.iter().zip(states).map(|(limit, state)| {
        let remaining = limit.remaining(state, now).saturating_sub(cost);
        longest_delay = longest_delay.max(limit.delay(state, now));
        Standing { limit: limit.limit(), remaining, reset_after: limit.charge(state, now, cost) }
    });
    let standing = tightest(charged);
    Decision::allow(standing, longest_delay)
}

/// Decides whether [`check_list`] would allow the call. Charges nothing.
///
/// # Panics
/// If there is not one state per limit.
pub fn peek_list<A: Algorithm>(limits: &[A], states: &[A::State], now: Time, cost: u64) -> Decision {
    // With fewer states some limits would be skipped, and more would be admitted.
    assert_eq!(limits.len(), states.len(), "one state per limit");
    let both = || limits.iter().zip(states);
    let standing = || tightest(both().map(|(limit, state)| limit.standing(state, now)));
    let decisions = both().map(|(limit, state)| limit.peek(state, now, cost));
    strictest(decisions).map_or_else(|denied| denied, |delay| Decision::allow(standing(), delay))
}

/// Charges as much as remains under a list of limits on one key, at most `up_to`, and returns how
/// much that was. If nothing remains, the decision is the denial of cost 1.
///
/// # Errors
/// If one of the limits does not support this verb.
///
/// # Panics
/// If there is not one state per limit.
pub fn take_list<A: Algorithm>(
    limits: &[A],
    states: &mut [A::State],
    now: Time,
    up_to: u64,
) -> Result<(Decision, u64), Unsupported> {
    limits.iter().try_for_each(|limit| limit.require(Verb::Take))?;
    let taken = up_to.min(peek_list(limits, states, now, 0).remaining());
    if taken == 0 {
        return Ok((peek_list(limits, states, now, up_to.min(1)), 0));
    }
    Ok((check_list(limits, states, now, taken), taken))
}

/// Returns when the next window of a list of limits on one key starts: the latest of theirs.
pub fn next_window_list<A: Algorithm>(limits: &[A], states: &[A::State], now: Time) -> Time {
    let both = limits.iter().zip(states);
    both.map(|(limit, state)| limit.next_window(state, now)).max().unwrap_or(now)
}

/// Returns what one key has used under each limit of a list.
pub fn usage_list<'a, A: Algorithm>(
    limits: &'a [A],
    states: &'a [A::State],
    now: Time,
) -> impl Iterator<Item = Usage> + 'a {
    limits.iter().zip(states).map(move |(limit, state)| limit.usage(state, now))
}

/// Charges `cost` to a list of limits on one key now, if the caller can act within `max_wait`,
/// after the decision's delay. This is a reservation without a receipt; buckets may borrow.
///
/// # Errors
/// If one of the limits does not support this verb.
///
/// # Panics
/// If there is not one state per limit.
pub fn check_within_list<A: Algorithm>(
    limits: &[A],
    states: &mut [A::State],
    now: Time,
    cost: u64,
    max_wait: Span,
) -> Result<Decision, Unsupported> {
    limits.iter().try_for_each(|limit| limit.require(Verb::CheckWithin))?;
    // The common case needs no list of parts.
    if let ([limit], [state]) = (limits, &mut *states) {
        return Ok(limit.check_within(state, now, cost, max_wait));
    }
    assert_eq!(limits.len(), states.len(), "one state per limit");
    let mut parts: Vec<Part<'_, A>> =
        limits.iter().zip(states).map(|(limit, state)| Part { limit, state, cost }).collect();
    Ok(reserve_all(&mut parts, now, max_wait).0)
}

/// Decides whether [`reserve_all`] would allow these calls. Charges nothing.
pub fn peek_within_all<A: Algorithm>(parts: &[Part<'_, A>], now: Time, max_wait: Span) -> Decision {
    let decisions = parts.iter().map(|part| reserve_alone(part, now, max_wait));
    strictest(decisions).map_or_else(|denied| denied, |delay| Decision::allow(standing_of(parts, now), delay))
}

/// Decides whether a part alone could be reserved.
fn reserve_alone<A: Algorithm>(part: &Part<'_, A>, now: Time, max_wait: Span) -> Decision {
    let standing = part.limit.standing(part.state, now);
    match part.limit.reserve_wait(part.state, now, part.cost, max_wait) {
        Ok(delay) => Decision::allow(standing, delay),
        Err(retry_after) => Decision::deny(standing, retry_after),
    }
}

/// Charges each part now, if the caller can act within `max_wait`: all of them or none. The delay
/// is the longest of theirs. Returns what a receipt has to record of each charge.
pub fn reserve_all<A: Algorithm>(
    parts: &mut [Part<'_, A>],
    now: Time,
    max_wait: Span,
) -> (Decision, Option<Vec<Charge>>) {
    let decisions: Vec<Decision> = parts.iter().map(|part| reserve_alone(part, now, max_wait)).collect();
    let delay = match strictest(decisions.iter().copied()) {
        Ok(delay) => delay,
        Err(denied) => return (denied, None),
    };
    let mut charges = Vec::with_capacity(parts.len());
    for (part, decision) in parts.iter_mut().zip(decisions) {
        if part.cost > 0 {
            part.limit.charge(part.state, now, part.cost);
        }
        charges.push(part.limit.record(part.state, part.cost, decision.delay() > Span::ZERO));
    }
    (Decision::allow(standing_of(parts, now), delay), Some(charges))
}

/// Returns the longest delay if all limits allow the call, or the denial with the longest wait.
fn strictest(decisions: impl Iterator<Item = Decision>) -> Result<Span, Decision> {
    let mut longest_delay = Span::ZERO;
    let mut denied: Option<Decision> = None;
    for (position, decision) in (0..).zip(decisions) {
        match decision.retry_after() {
            None => longest_delay = longest_delay.max(decision.delay()),
            // `None` is less than any wait, so the first denial is taken too.
            longer if longer > denied.and_then(|denied| denied.retry_after()) => {
                denied = Some(decision.by_limit(position));
            }
            Some(_) => {}
        }
    }
    denied.map_or(Ok(longest_delay), Err)
}

/// Returns the standing with the least remaining, the first on a tie.
fn tightest(standings: impl Iterator<Item = Standing>) -> Standing {
    // Without limits nothing is denied; callers have at least one.
    const UNLIMITED: Standing = Standing {
        limit: crate::bounds::COUNT_MAX,
        remaining: crate::bounds::COUNT_MAX,
        reset_after: Span::ZERO,
    };
    standings
        .reduce(|least, next| if next.remaining < least.remaining { next } else { least })
        .unwrap_or(UNLIMITED)
}
