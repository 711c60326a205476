//! Several calls as one: all are charged, or none.
//!
//! A key without limits takes no part, and one blocked denies all. A shadow rule never denies: if it would, its call is left
//! out and the others are asked again.

use super::rule::Applies;
use super::{Asked, Mistake, Verdict};
use sluicegate::{Call, Decision, Time, check_all_each_at};

/// May all of these happen now? The answer for all, and for each: how it stands after the charge, or if all are denied
/// whether it would be allowed by itself. The rules that denied count it; all do if it was allowed, or denied for want of room.
pub(super) fn check_all(parts: &[Asked<'_>], now: Time) -> Result<(Verdict, Vec<Verdict>), Mistake> {
    let is_shadow = |place: usize| parts[place].rule.spec().shadow;
    let mut each: Vec<Verdict> = parts.iter().map(|part| stands_alone(part, now)).collect();
    let mut taking_part: Vec<usize> = (0..parts.len()).collect();
    taking_part.retain(|place| matches!(parts[*place].applies(), Applies::Limits(_)));
    let blocks =
        |(place, part): (usize, &Asked<'_>)| matches!(part.applies(), Applies::Blocked) && !is_shadow(place);
    let all = if parts.iter().enumerate().any(blocks) {
        Verdict::blocked()
    } else {
        loop {
            let decision = ask(parts, &taking_part, &mut each, now)?;
            let before = taking_part.len();
            if !decision.allowed() {
                taking_part.retain(|place| !(is_shadow(*place) && each[*place].denied()));
            }
            if taking_part.len() == before {
                break told(&decision, taking_part.iter().map(|place| &each[*place]));
            }
        }
    };
    // Denied, but by no rule: there is no room for a new key.
    let no_room = !all.allowed && !each.iter().any(Verdict::denied);
    for (part, verdict) in parts.iter().zip(&mut each) {
        if no_room {
            part.rule.count(&all);
        } else if all.allowed || verdict.denied() {
            part.rule.count(verdict);
        }
        *verdict = part.rule.shadowed(verdict.clone());
    }
    Ok((all, each))
}

/// How a call would be answered by itself, without a charge.
fn stands_alone(part: &Asked<'_>, now: Time) -> Verdict {
    match part.applies() {
        Applies::Unlimited => Verdict::unlimited(),
        Applies::Blocked => Verdict::blocked(),
        Applies::Limits(ruling) => ruling.verdict(&ruling.limiter.peek_at(part.key, part.cost, now), now),
    }
}

/// Charges those that take part, if all of them agree, and writes down how each stands.
fn ask(
    parts: &[Asked<'_>],
    taking_part: &[usize],
    each: &mut [Verdict],
    now: Time,
) -> Result<Decision, Mistake> {
    let mut rulings = Vec::with_capacity(taking_part.len());
    let mut calls: Vec<Call<'_>> = Vec::with_capacity(taking_part.len());
    for place in taking_part {
        let Asked { key, cost, .. } = &parts[*place];
        if let Applies::Limits(ruling) = parts[*place].applies() {
            rulings.push((*place, ruling));
            calls.push(ruling.limiter.on(key, *cost));
        }
    }
    let (decision, decisions) = check_all_each_at(&calls, now)?;
    for ((place, ruling), decision) in rulings.into_iter().zip(&decisions) {
        each[place] = ruling.verdict(decision, now);
    }
    Ok(decision)
}

/// The answer for all. Allowed, it is that of the one with the least remaining; denied, of the one that says no for longest;
/// the first of equals.
fn told<'a>(decision: &Decision, taking_part: impl Iterator<Item = &'a Verdict>) -> Verdict {
    let chosen = if decision.allowed() {
        taking_part.reduce(|least, next| if next.remaining < least.remaining { next } else { least })
    } else {
        let denied = taking_part.filter(|verdict| verdict.denied());
        denied.reduce(|longest, next| if next.retry_after > longest.retry_after { next } else { longest })
    };
    match chosen {
        Some(chosen) => Verdict { delay: decision.delay(), ..chosen.clone() },
        None if decision.allowed() => Verdict::unlimited(),
        // No limit said no: there is no room for a new key.
        None => Verdict::of(decision, &[], |_| false),
    }
}
