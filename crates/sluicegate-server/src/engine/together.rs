//! Several calls as one: all are charged, or none.
//!
//! A key without limits takes no part, and one blocked denies all. A shadow rule never denies: if it would, its call is left
//! out and the others are asked again.
//!
//! When a shared store is away, each of their rules may say something else: one that is to deny denies all, and all are
//! allowed only if all are to allow. Shadow rules and keys without limits have no say in that. Deciding locally is for one key at a time: nobody could give back here what was charged
//! there.

use super::judge::{Judge, Told};
use super::lender::use_acquire;
use super::rule::{Applies, Ruling};
use super::shared::Shared;
use super::{Asked, Mistake, Verdict};
use sluicegate::core::bounds::COUNT_MAX;
use sluicegate::{Decision, RetryAfter, Span, Time, check_all_each_at};
use sluicegate_redis::{OnStoreFailure, Source};

/// Calls that are denied because the store is away are told to come back after this.
const COME_BACK_AFTER: Span = Span::from_micros(1_000_000);

/// May all of these happen now? The answer for all, and for each: how it stands after the charge, or if all are denied
/// whether it would be allowed by itself. The rules that denied count it; all do if it was allowed, or denied by none of them.
pub(super) async fn check_all(parts: &[Asked<'_>], now: Time) -> Result<(Verdict, Vec<Verdict>), Mistake> {
    let is_shadow = |place: usize| parts[place].rule.spec().shadow;
    let mut each: Vec<Verdict> = parts.iter().map(without_limits).collect();
    let mut taking_part: Vec<usize> = (0..parts.len()).collect();
    taking_part.retain(|place| matches!(parts[*place].applies(), Applies::Limits(_)));
    let blocks =
        |(place, part): (usize, &Asked<'_>)| matches!(part.applies(), Applies::Blocked) && !is_shadow(place);
    let all = if parts.iter().enumerate().any(blocks) {
        for (part, verdict) in parts.iter().zip(&mut each) {
            let Asked { rule, key, cost } = part;
            *verdict = rule.answer(key, now, async |judge| judge.peek(key, *cost, now).await).await?;
        }
        Verdict::blocked()
    } else {
        loop {
            let told = ask(parts, &taking_part, &mut each, now).await?;
            let before = taking_part.len();
            // Whoever answered without the store may not ask it again: the call may have been charged.
            if !told.decision.allowed() && told.instead.is_none() {
                taking_part.retain(|place| !(is_shadow(*place) && each[*place].denied()));
            }
            if taking_part.len() == before {
                break tell(&told, taking_part.iter().map(|place| &each[*place]));
            }
        }
    };
    // Denied, but by no rule: there is no room for a new key, or no store.
    let by_no_rule = !all.allowed && !each.iter().any(Verdict::denied);
    for (part, verdict) in parts.iter().zip(&mut each) {
        if by_no_rule {
            part.rule.count(&all);
        } else if all.allowed || verdict.denied() {
            part.rule.count(verdict);
        }
        *verdict = part.rule.shadowed(verdict.clone());
    }
    Ok((all, each))
}

/// How a call is answered that takes no part. The others are asked.
fn without_limits(part: &Asked<'_>) -> Verdict {
    match part.applies() {
        Applies::Unlimited | Applies::Limits(_) => Verdict::unlimited(),
        Applies::Blocked => Verdict::blocked(),
    }
}

/// Charges those that take part, if all of them agree, and writes down how each stands.
async fn ask(
    parts: &[Asked<'_>],
    taking_part: &[usize],
    each: &mut [Verdict],
    now: Time,
) -> Result<Told, Mistake> {
    let mut rulings: Vec<(usize, &Ruling)> = Vec::with_capacity(taking_part.len());
    for place in taking_part {
        if let Applies::Limits(ruling) = parts[*place].applies() {
            rulings.push((*place, ruling));
        }
    }
    let (told, decisions) = decide(parts, &rulings, now).await?;
    for ((place, ruling), decision) in rulings.into_iter().zip(decisions) {
        each[place] = ruling.verdict(&Told { decision, ..told }, now);
    }
    Ok(told)
}

/// Asks the limiters, all of which are in one home.
async fn decide(
    parts: &[Asked<'_>],
    rulings: &[(usize, &Ruling)],
    now: Time,
) -> Result<(Told, Vec<Decision>), Mistake> {
    let (mut in_memory, mut in_store) = (Vec::new(), Vec::new());
    let mut store: Option<&Shared> = None;
    for (place, ruling) in rulings {
        let Asked { key, cost, .. } = parts[*place];
        match &ruling.judge {
            Judge::Memory(limiter) => in_memory.push(limiter.on(key, cost)),
            Judge::Shared(limiter) => {
                store = Some(limiter.shared());
                in_store.push(limiter.on(key, cost));
            }
            Judge::Lends(_) => return Err(use_acquire()),
        }
    }
    if let Some(store) = store {
        let asked = store.check_all(&in_store, now).await;
        return match asked {
            Err(mistake) if mistake.is_of_store() => without_store(parts, rulings, store).ok_or(mistake),
            asked => asked,
        };
    }
    let (decision, decisions) = check_all_each_at(&in_memory, now)?;
    Ok((decision.into(), decisions))
}

/// What is answered when the store is away; `None` if nothing can be. Shadow rules have no say.
fn without_store(
    parts: &[Asked<'_>],
    rulings: &[(usize, &Ruling)],
    store: &Shared,
) -> Option<(Told, Vec<Decision>)> {
    let rules = rulings.iter().map(|(place, _)| &parts[*place].rule).filter(|rule| !rule.spec().shadow);
    let says: Vec<OnStoreFailure> = rules.map(|rule| rule.on_failure()).collect();
    let (decision, source) = if says.contains(&OnStoreFailure::Deny) {
        (Decision::no_room(0, RetryAfter::After(COME_BACK_AFTER)), Source::Denied)
    } else if says.iter().all(|says| *says == OnStoreFailure::Allow) {
        (Decision::let_pass(COUNT_MAX), Source::Allowed)
    } else {
        return None;
    };
    store.answered_instead(source);
    Some((Told::by(decision, source), vec![decision; rulings.len()]))
}

/// The answer for all. Allowed, it is that of the one with the least remaining; denied, of the one that says no for longest;
/// the first of equals.
fn tell<'a>(told: &Told, taking_part: impl Iterator<Item = &'a Verdict>) -> Verdict {
    let Told { decision, .. } = told;
    let chosen = if decision.allowed() {
        taking_part.reduce(|least, next| if next.remaining < least.remaining { next } else { least })
    } else {
        let denied = taking_part.filter(|verdict| verdict.denied());
        denied.reduce(|longest, next| if next.retry_after > longest.retry_after { next } else { longest })
    };
    match chosen {
        Some(chosen) => Verdict { delay: decision.delay(), ..chosen.clone() },
        None if decision.allowed() => Verdict::unlimited(),
        // No limit said no: there is no room for a new key, or no store.
        None => Verdict::of(told, &[], |_| false),
    }
}
