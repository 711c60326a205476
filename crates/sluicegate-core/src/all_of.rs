//! Several limits as one: all of them are charged, or none.
//!
//! ```text
//! Allowed    if each limit allows; then all are charged. Reported are limit, remaining and reset_after of the one
//!            with the least remaining (the first of equals), and the longest delay.
//! Denied     if any denies; none is charged. Reported is the one with the longest retry_after (`never` the longest
//!            of all, the first of equals), all fields its own.
//! ```
//!
//! A [`Part`] is one limit on one key's state with its own cost: a list of limits on one key has equal costs, a
//! call on several keys may not.

use crate::algorithm::{Algorithm, Verb};
use crate::bounds::saturating_count;
use crate::decision::{Decision, Standing};
use crate::rollback::Charge;
use crate::time::{Span, Time};
use crate::verbs::{Unsupported, Verbs as _};
use alloc::vec::Vec;

/// One limit, one key's state and the cost there.
#[derive(Debug)]
pub struct Part<'a, A: Algorithm> {
    /// The limit.
    pub limit: &'a A,
    /// The key's state under it.
    pub state: &'a mut A::State,
    /// What the call costs there.
    pub cost: u32,
}

/// Checks several limits, perhaps on several keys: allowed and charged everywhere, or nowhere.
///
/// A limit that counts denied calls (`count=all`) has no place here: a denial changes nothing.
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

/// Would [`check_all`] allow these calls? Nothing is charged.
pub fn peek_all<A: Algorithm>(parts: &[Part<'_, A>], now: Time) -> Decision {
    let answers = parts.iter().map(|part| part.limit.peek(part.state, now, part.cost));
    strictest(answers).map_or_else(|denied| denied, |delay| Decision::allow(standing_of(parts, now), delay))
}

fn standing_of<A: Algorithm>(parts: &[Part<'_, A>], now: Time) -> Standing {
    tightest(parts.iter().map(|part| part.limit.standing(part.state, now)))
}

/// Checks a list of limits on one key, each with its own state: allowed and charged to all, or to none.
///
/// # Panics
/// When there is not one state for each limit.
pub fn check_list<A: Algorithm>(limits: &[A], states: &mut [A::State], now: Time, cost: u32) -> Decision {
    // The common case needs no second look, and may enter a denied call (`count=all`).
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

/// Would [`check_list`] allow the call? Nothing is charged.
///
/// # Panics
/// When there is not one state for each limit.
pub fn peek_list<A: Algorithm>(limits: &[A], states: &[A::State], now: Time, cost: u32) -> Decision {
    // Fewer states would leave limits out, and so admit more.
    assert_eq!(limits.len(), states.len(), "a state for each limit");
    let both = || limits.iter().zip(states);
    let standing = || tightest(both().map(|(limit, state)| limit.standing(state, now)));
    let answers = both().map(|(limit, state)| limit.peek(state, now, cost));
    strictest(answers).map_or_else(|denied| denied, |delay| Decision::allow(standing(), delay))
}

/// Takes `up_to` from a list of limits on one key, or as much of it as remains, and says how much that was. When
/// nothing remains the answer is the denial of cost 1.
///
/// # Errors
/// When one of the limits does not offer this verb.
///
/// # Panics
/// When there is not one state for each limit.
pub fn take_list<A: Algorithm>(
    limits: &[A],
    states: &mut [A::State],
    now: Time,
    up_to: u32,
) -> Result<(Decision, u32), Unsupported> {
    limits.iter().try_for_each(|limit| limit.require(Verb::Take))?;
    let taken = up_to.min(saturating_count(peek_list(limits, states, now, 0).remaining()));
    if taken == 0 {
        return Ok((peek_list(limits, states, now, up_to.min(1)), 0));
    }
    Ok((check_list(limits, states, now, taken), taken))
}

/// When the next window of a list of limits on one key starts: the latest of them.
pub fn next_window_list<A: Algorithm>(limits: &[A], states: &[A::State], now: Time) -> Time {
    let both = limits.iter().zip(states);
    both.map(|(limit, state)| limit.next_window(state, now)).max().unwrap_or(now)
}

/// Charges `cost` to a list of limits on one key now, to act after the answer's delay, which is at most `max_wait`: a
/// reservation without a receipt. Buckets may borrow.
///
/// # Errors
/// When one of the limits does not offer this verb.
///
/// # Panics
/// When there is not one state for each limit.
pub fn check_within_list<A: Algorithm>(
    limits: &[A],
    states: &mut [A::State],
    now: Time,
    cost: u32,
    max_wait: Span,
) -> Result<Decision, Unsupported> {
    limits.iter().try_for_each(|limit| limit.require(Verb::CheckWithin))?;
    // The common case needs no list of parts.
    if let ([limit], [state]) = (limits, &mut *states) {
        return Ok(limit.check_within(state, now, cost, max_wait));
    }
    assert_eq!(limits.len(), states.len(), "a state for each limit");
    let mut parts: Vec<Part<'_, A>> =
        limits.iter().zip(states).map(|(limit, state)| Part { limit, state, cost }).collect();
    Ok(reserve_all(&mut parts, now, max_wait).0)
}

/// Charges each part now, to act after the answer's delay: the longest of theirs.
pub(crate) fn reserve_all<A: Algorithm>(
    parts: &mut [Part<'_, A>],
    now: Time,
    max_wait: Span,
) -> (Decision, Option<Vec<Charge>>) {
    let answer = |part: &Part<'_, A>| {
        let standing = part.limit.standing(part.state, now);
        match part.limit.reserve_wait(part.state, now, part.cost, max_wait) {
            Ok(delay) => Decision::allow(standing, delay),
            Err(retry_after) => Decision::deny(standing, retry_after),
        }
    };
    let answers: Vec<Decision> = parts.iter().map(answer).collect();
    let delay = match strictest(answers.iter().copied()) {
        Ok(delay) => delay,
        Err(denied) => return (denied, None),
    };
    let mut charges = Vec::with_capacity(parts.len());
    for (part, answer) in parts.iter_mut().zip(answers) {
        if part.cost > 0 {
            part.limit.charge(part.state, now, part.cost);
        }
        charges.push(part.limit.record(part.state, part.cost, answer.delay() > Span::ZERO));
    }
    (Decision::allow(standing_of(parts, now), delay), Some(charges))
}

/// The longest delay if all allow, or the answer of the one that says no for longest.
fn strictest(answers: impl Iterator<Item = Decision>) -> Result<Span, Decision> {
    let mut longest_delay = Span::ZERO;
    let mut denied: Option<Decision> = None;
    for (place, answer) in (0..).zip(answers) {
        match answer.retry_after() {
            None => longest_delay = longest_delay.max(answer.delay()),
            // Absent is the least of all, so the first denial is taken too.
            longer if longer > denied.and_then(|denied| denied.retry_after()) => {
                denied = Some(answer.by_limit(place));
            }
            Some(_) => {}
        }
    }
    denied.map_or(Ok(longest_delay), Err)
}

/// The standing with the least remaining, the first of equals.
fn tightest(standings: impl Iterator<Item = Standing>) -> Standing {
    // Without any limit nothing is refused; callers have at least one.
    const UNLIMITED: Standing = Standing {
        limit: crate::bounds::COUNT_MAX,
        remaining: crate::bounds::COUNT_MAX,
        reset_after: Span::ZERO,
    };
    standings
        .reduce(|least, next| if next.remaining < least.remaining { next } else { least })
        .unwrap_or(UNLIMITED)
}
