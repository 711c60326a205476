//! Laws of changing rules, tried on random calls.

use crate::laws::{Dice, random_rule, random_verb};
use crate::{Model, Rule, Windows};
use sluicegate_model::{ReceiptId, RetryAfter};

/// Returns the same rule with other parameters, as far as the state is kept.
fn with_other_parameters(rule: &Rule, dice: &mut Dice) -> Rule {
    let (count, period, burst) = (1 + dice.below(9), 1 + dice.below(40), 1 + dice.below(9));
    match rule.clone() {
        Rule::Bucket { initial, .. } => Rule::Bucket { count, period, burst, initial },
        Rule::LeakyBucket { .. } => Rule::LeakyBucket { count, period, capacity: burst },
        Rule::MinInterval { .. } => Rule::MinInterval { interval: period },
        Rule::Pacer { .. } => Rule::Pacer { count, period, queue: burst - 1 },
        Rule::FixedWindow { windows, .. } => Rule::FixedWindow { count, windows },
        Rule::SlidingLog { count_all, .. } => Rule::SlidingLog { count, period, count_all },
        Rule::SlidingWindow { period, .. } => Rule::SlidingWindow { count, period },
        Rule::Smooth(rule) => Rule::Smooth(rule),
    }
}

/// Returns a rule that admits at least as much: a higher rate, a larger count, or both.
fn raised(rule: &Rule, dice: &mut Dice) -> Rule {
    let more = dice.below(9).saturating_sub(4);
    match rule.clone() {
        Rule::Bucket { count, period, burst, initial } => {
            let (count, period) = raised_rate(count, period, dice);
            Rule::Bucket { count, period, burst: burst + more, initial }
        }
        Rule::LeakyBucket { count, period, capacity } => {
            let (count, period) = raised_rate(count, period, dice);
            Rule::LeakyBucket { count, period, capacity: capacity + more }
        }
        Rule::MinInterval { interval } => Rule::MinInterval { interval: interval - dice.below(interval) },
        Rule::Pacer { count, period, queue } => {
            let (count, period) = raised_rate(count, period, dice);
            Rule::Pacer { count, period, queue: queue + more }
        }
        Rule::FixedWindow { count, windows } => Rule::FixedWindow { count: count + more, windows },
        Rule::SlidingLog { count, period, count_all } => {
            let period = period - dice.below(period);
            Rule::SlidingLog { count: count + more, period, count_all }
        }
        Rule::SlidingWindow { count, period } => Rule::SlidingWindow { count: count + more, period },
        Rule::Smooth(rule) => Rule::Smooth(rule),
    }
}

fn raised_rate(count: u64, period: u64, dice: &mut Dice) -> (u64, u64) {
    let other_period = 1 + dice.below(40);
    ((count * other_period).div_ceil(period) + dice.below(2), other_period)
}

/// A key after random calls: its receipts, and the times of the last call and of the latest.
fn random_key(rules: &[Rule], dice: &mut Dice) -> (Model, Vec<ReceiptId>, [u64; 2]) {
    let (mut model, mut receipts, mut now) = (Model::new(rules.to_vec()), Vec::new(), 1_000);
    let mut latest = now;
    for _ in 0..dice.below(30) {
        random_verb(&mut model, &mut receipts, dice, &mut now);
        latest = latest.max(now);
    }
    (model, receipts, [now, latest])
}

#[test]
fn a_change_to_the_same_parameters_changes_nothing() {
    let mut dice = Dice(11);
    for _ in 0..1_000 {
        let rules: Vec<Rule> = (0..=dice.below(3)).map(|_| random_rule(&mut dice)).collect();
        let (mut model, mut receipts, [mut now, _]) = random_key(&rules, &mut dice);
        let mut changed = model.clone();
        changed.change(vec![random_rule(&mut dice)]);
        changed.change(rules);
        for _ in 0..10 {
            let (mut same_dice, mut same_receipts, mut same_now) = (Dice(dice.0), receipts.clone(), now);
            random_verb(&mut changed, &mut same_receipts, &mut same_dice, &mut same_now);
            random_verb(&mut model, &mut receipts, &mut dice, &mut now);
            assert_eq!(changed, model);
        }
    }
}

#[test]
fn raising_never_denies_more() {
    let mut dice = Dice(12);
    for _ in 0..6_000 {
        let rule = random_rule(&mut dice);
        // Until the clock has caught up with a step back, the wait for it is the same.
        let (before, _, [_, mut now]) = random_key(std::slice::from_ref(&rule), &mut dice);
        let (mut after, mut raised_rule) = (before.clone(), rule);
        for _ in 0..5 {
            raised_rule = raised(&raised_rule, &mut dice);
            after.change(vec![raised_rule.clone()]);
            if dice.below(2) == 0 {
                // Denied, as it exceeds every limit; but it converts the key.
                after.check(now, 1_000_000);
            }
            for wait in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
                let (old, new) = (before.peek(now + wait, 0), after.peek(now + wait, 0));
                assert!(new.remaining >= old.remaining, "{wait} after {now}: {before:?}\n{after:?}");
                // A larger bucket takes longer to fill, if it was not full at first.
                if new.limit == old.limit {
                    assert!(new.reset_after <= old.reset_after, "{wait} after {now}: {before:?}\n{after:?}");
                }
                let cost = 1 + dice.below(9);
                let (old, new) = (before.peek(now + wait, cost), after.peek(now + wait, cost));
                if old.allowed {
                    assert!(new.allowed && new.delay <= old.delay, "{cost} at {now}: {before:?}\n{after:?}");
                }
            }
            now += dice.below(9);
        }
    }
}

/// A call on the key, with the part of its cost that stayed charged.
enum Event {
    Charge { at: u64, charged: u64, receipt: Option<ReceiptId> },
    Refund { at: u64, cost: u64 },
    Change(Rule),
}

/// Reserves, refunds, cancels, settles and changes parameters at random.
fn random_history(rule: &Rule, dice: &mut Dice) -> (Model, Vec<Event>, u64) {
    let (mut model, mut events, mut now) = (Model::new(vec![rule.clone()]), Vec::new(), 1_050);
    for _ in 0..12 + dice.below(40) {
        now += dice.below(9).saturating_sub(3);
        let cost = 1 + dice.below(7);
        // Whatever is called converts the key, and so does a charge of 0 in the other history.
        let mut call = Event::Charge { at: now, charged: 0, receipt: None };
        match dice.below(12) {
            0..=3 => {
                let place = usize::try_from(dice.below(9)).unwrap_or(0);
                let mut open = events.iter_mut().rev().filter_map(|event| match event {
                    Event::Charge { charged, receipt, .. } if receipt.is_some() => Some((charged, receipt)),
                    _ => None,
                });
                if let Some((charged, receipt)) = open.nth(place)
                    && let Some(id) = receipt.take()
                {
                    let used = if dice.below(2) == 0 { 0 } else { cost };
                    let excess = used.saturating_sub(*charged);
                    *charged = used.min(*charged);
                    if used == 0 {
                        model.cancel(now, id)
                    } else {
                        model.settle(now, id, used)
                    };
                    call = Event::Charge { at: now, charged: excess, receipt: None };
                    events.push(call);
                }
                continue;
            }
            4 => {
                if model.refund(now, cost).is_some() {
                    call = Event::Refund { at: now, cost };
                } else {
                    continue;
                }
            }
            5 | 6 => {
                let other = with_other_parameters(rule, dice);
                model.change(vec![other.clone()]);
                call = Event::Change(other);
            }
            _ => {
                if let (_, Some(receipt)) = model.reserve(now, cost, dice.below(20)) {
                    call = Event::Charge { at: now, charged: cost, receipt: Some(receipt) };
                }
            }
        }
        events.push(call);
    }
    (model, events, now)
}

/// Returns the key as if only what was kept had been charged, whether or not it would have been
/// allowed.
fn without_the_returned(rule: &Rule, events: &[Event]) -> Model {
    let mut model = Model::new(vec![rule.clone()]);
    for event in events {
        match event {
            Event::Charge { at, charged, .. } => {
                let (_, receipt) = model.reserve(*at, 0, 0);
                receipt.map(|receipt| model.settle(*at, receipt, *charged));
            }
            Event::Refund { at, cost } => drop(model.refund(*at, *cost)),
            Event::Change(rule) => model.change(vec![rule.clone()]),
        }
    }
    model
}

#[test]
fn receipts_never_create_credit_across_changes() {
    let mut dice = Dice(13);
    for _ in 0..20_000 {
        let rule = random_rule(&mut dice);
        // Without the call that opened it, a window would have opened later. Without its only call,
        // a key would be unseen, and have what is initial under the new parameters.
        if matches!(
            rule,
            Rule::FixedWindow { windows: Windows::First { .. }, .. } | Rule::Bucket { initial: Some(_), .. }
        ) {
            continue;
        }
        let (model, events, now) = random_history(&rule, &mut dice);
        let twin = without_the_returned(&rule, &events);
        for wait in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
            let (ours, theirs) = (model.peek(now + wait, 0), twin.peek(now + wait, 0));
            assert!(ours.remaining <= theirs.remaining, "{wait} after {now}: {model:?}\n{twin:?}");
            assert!(ours.reset_after >= theirs.reset_after, "{wait} after {now}: {model:?}\n{twin:?}");
        }
    }
}

/// Every key that is changed and calls is one under the new rules: its waits are tight.
#[test]
fn waits_are_tight_after_a_change() {
    let mut dice = Dice(14);
    for _ in 0..4_000 {
        let rule = random_rule(&mut dice);
        let (mut model, _, [now, _]) = random_key(std::slice::from_ref(&rule), &mut dice);
        model.change(vec![with_other_parameters(&rule, &mut dice)]);
        let cost = 1 + dice.below(9);
        let denied = model.check(now.max(1_010), cost);
        if let Some(RetryAfter::After(wait)) = denied.retry_after {
            assert!(!model.peek(now.max(1_010) + wait - 1, cost).allowed, "{model:?}");
            assert!(model.peek(now.max(1_010) + wait, cost).allowed, "{model:?}");
        }
    }
}
