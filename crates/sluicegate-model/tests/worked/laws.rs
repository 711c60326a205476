//! Laws that hold whatever the calls are, tried on random ones.

use crate::{Model, Rule, Windows};
use sluicegate_model::{Initial, ReceiptId, RetryAfter};

/// A small random number generator: repeatable, and without a dependency.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

pub(crate) fn random_rule(dice: &mut Dice) -> Rule {
    let count = 1 + dice.below(9);
    let period = 1 + dice.below(40);
    let burst = 1 + dice.below(9);
    let initial = Some(Initial { tokens: dice.below(12), start: 1_000 + dice.below(30) });
    match dice.below(10) {
        0 | 1 => Rule::Bucket { count, period, burst, initial: None },
        2 => Rule::Bucket { count, period, burst, initial },
        3 => Rule::Pacer { count, period, queue: burst - 1 },
        4 => Rule::FixedWindow { count, windows: Windows::Epoch { period } },
        5 => Rule::FixedWindow { count, windows: Windows::First { period } },
        6 => Rule::FixedWindow { count, windows: Windows::From { start: 1_010, period } },
        7 => Rule::FixedWindow { count, windows: Windows::Boundaries((0..900).map(|n| n * n).collect()) },
        8 => Rule::SlidingLog { count, period, count_all: false },
        _ => Rule::SlidingWindow { count, period },
    }
}

/// Calls one verb at random, under a clock that may step back.
pub(crate) fn random_verb(model: &mut Model, receipts: &mut Vec<ReceiptId>, dice: &mut Dice, now: &mut u64) {
    *now = if dice.below(10) == 0 { 950 + dice.below(150) } else { *now + dice.below(6) };
    let cost = dice.below(11);
    match dice.below(8) {
        0 => drop(model.refund(*now, cost)),
        1 => drop(model.take(*now, cost)),
        2 | 3 => receipts.extend(model.reserve(*now, cost, dice.below(20)).1),
        4 => receipts.pop().map_or((), |receipt| {
            model.settle(*now, receipt, cost);
        }),
        5 if !receipts.is_empty() => {
            let place = usize::try_from(dice.below(99)).unwrap_or(0) % receipts.len();
            model.cancel(*now, receipts.swap_remove(place));
        }
        _ => drop(model.check(*now, cost)),
    }
}

#[test]
fn every_wait_is_tight() {
    let mut dice = Dice(1);
    for _ in 0..400 {
        let rules: Vec<Rule> = (0..=dice.below(3)).map(|_| random_rule(&mut dice)).collect();
        let opens = opening(&rules);
        let (mut model, mut receipts, mut now) = (Model::new(rules), Vec::new(), 1_000);
        for _ in 0..100 {
            random_verb(&mut model, &mut receipts, &mut dice, &mut now);
            if now >= opens {
                assert_wait_is_tight(&model, now, 1 + dice.below(10));
            }
        }
    }
}

/// Returns when the last of the rules opens. Before that all waits are until then, even for a key
/// that was charged before the clock stepped back.
fn opening(rules: &[Rule]) -> u64 {
    let start = |rule: &Rule| match rule {
        Rule::FixedWindow { windows: Windows::From { start, .. }, .. } => *start,
        _ => 0,
    };
    rules.iter().map(start).max().unwrap_or(0)
}

fn assert_wait_is_tight(model: &Model, now: u64, cost: u64) {
    let before = model.clone();
    let answer = model.clone().check(now, cost);
    if answer.allowed {
        assert!(answer.limit >= answer.remaining);
        return;
    }
    let mut charged = model.clone();
    charged.check(now, cost);
    assert_eq!(charged, before, "a denial changes nothing");
    if let Some(RetryAfter::After(wait)) = answer.retry_after {
        assert!(wait > 0);
        assert!(!model.peek(now + wait - 1, cost).allowed, "{model:?}");
        assert!(model.peek(now + wait, cost).allowed, "{model:?}");
    }
}

#[test]
fn exactly_what_remains_is_allowed() {
    let mut dice = Dice(2);
    for _ in 0..400 {
        let rules = vec![random_rule(&mut dice)];
        let opens = opening(&rules);
        let (mut model, mut receipts, mut now) = (Model::new(rules), Vec::new(), 1_000);
        for _ in 0..100 {
            random_verb(&mut model, &mut receipts, &mut dice, &mut now);
            if now < opens {
                continue;
            }
            let answer = model.peek(now, 0);
            assert!(model.peek(now, answer.remaining).allowed);
            assert!(!model.peek(now, answer.remaining + 1).allowed);
            let idle = model.peek(now + answer.reset_after, 0);
            assert_eq!((idle.remaining, idle.reset_after), (answer.limit, 0), "{model:?}");
        }
    }
}

/// A call on a key, with the part of its cost that stayed charged.
struct Event {
    at: u64,
    charged: u64,
    refunded: u64,
    /// Open until the charge is returned or settled.
    receipt: Option<ReceiptId>,
}

impl Event {
    fn charge(at: u64, charged: u64, receipt: Option<ReceiptId>) -> Self {
        Self { at, charged, refunded: 0, receipt }
    }
}

/// What happens besides reserving without a wait and returning.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Also {
    Nothing,
    /// Reserving with a wait, and settling for more than was reserved.
    Owing,
    OwingAndRefunding,
}

/// Reserves, cancels and settles at random and in any order, under a clock that runs forward.
///
/// After each return `observe` sees the model, what was kept so far, and the time.
fn random_returns(rule: &Rule, dice: &mut Dice, also: Also, observe: impl Fn(&Model, &[Event], u64)) {
    let (mut model, mut events, mut now) = (Model::new(vec![rule.clone()]), Vec::<Event>::new(), 1_050);
    for _ in 0..12 + dice.below(40) {
        now += dice.below(9).saturating_sub(3);
        let (cost, place) = (1 + dice.below(7), usize::try_from(dice.below(9)).unwrap_or(0));
        let mut returnable = events.iter_mut().rev().filter(|event| event.receipt.is_some());
        match (dice.below(12), returnable.nth(place)) {
            (0..=2, Some(event)) => {
                event.charged = 0;
                event.receipt.take().map(|receipt| model.cancel(now, receipt));
                observe(&model, &events, now);
            }
            (3, Some(event)) => {
                let used = if also < Also::Owing { cost.min(event.charged) } else { cost };
                let excess = used.saturating_sub(event.charged);
                event.charged = used.min(event.charged);
                event.receipt.take().map(|receipt| model.settle(now, receipt, used));
                events.push(Event::charge(now, excess, None));
                observe(&model, &events, now);
            }
            (4, _) if also == Also::OwingAndRefunding => {
                model.refund(now, cost);
                events.push(Event { at: now, charged: 0, refunded: cost, receipt: None });
            }
            _ => {
                let max_wait = if also < Also::Owing { 0 } else { dice.below(20) };
                if let (_, Some(receipt)) = model.reserve(now, cost, max_wait) {
                    events.push(Event::charge(now, cost, Some(receipt)));
                }
            }
        }
    }
    observe(&model, &events, now);
}

/// Returns the key as if only what was kept had been charged, whether or not it would have been
/// allowed.
fn without_the_returned(rule: &Rule, events: &[Event]) -> Model {
    let mut model = Model::new(vec![rule.clone()]);
    for event in events {
        model.refund(event.at, event.refunded);
        // A reservation of cost 0 that is settled for more is charged whatever remains.
        let (_, receipt) = model.reserve(event.at, 0, 0);
        receipt.map(|receipt| model.settle(event.at, receipt, event.charged));
    }
    model
}

/// Whatever is returned, in any order: the key is never better off than without the returned calls.
///
/// Not for windows that the first call opens: without the call, the window would have opened later.
/// Not before the start of a bucket: its first call there lets it refill from then on. And not
/// under a clock that steps back: it does not go back before the latest call, which may be one that
/// was returned.
fn assert_no_better_off_for_returns(dice: &mut Dice, also: Also) {
    for _ in 0..6_000 {
        let rule = random_rule(dice);
        if matches!(rule, Rule::FixedWindow { windows: Windows::First { .. }, .. }) {
            continue;
        }
        random_returns(&rule, dice, also, |model, events, now| {
            let twin = without_the_returned(&rule, events);
            for wait in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
                let (ours, theirs) = (model.peek(now + wait, 0), twin.peek(now + wait, 0));
                assert!(ours.remaining <= theirs.remaining, "{wait} after {now}: {model:?}\n{twin:?}");
                assert!(ours.reset_after >= theirs.reset_after, "{wait} after {now}: {model:?}\n{twin:?}");
            }
        });
    }
}

#[test]
fn returns_never_leave_a_key_better_off() {
    assert_no_better_off_for_returns(&mut Dice(3), Also::Owing);
}

#[test]
fn returns_among_refunds_never_leave_a_key_better_off() {
    assert_no_better_off_for_returns(&mut Dice(4), Also::OwingAndRefunding);
}

/// What was kept from `from` to `to`, both included.
fn kept_between(events: &[Event], from: u64, to: u64) -> u64 {
    events.iter().filter(|event| (from..=to).contains(&event.at)).map(|event| event.charged).sum()
}

#[test]
fn no_order_of_returns_exceeds_a_bucket() {
    let mut dice = Dice(5);
    for _ in 0..3_000 {
        let (count, period, burst) = (1 + dice.below(5), 1 + dice.below(9), 1 + dice.below(20));
        let rule = Rule::Bucket { count, period, burst, initial: None };
        random_returns(&rule, &mut dice, Also::Nothing, |model, events, _| {
            for first in events {
                for last in events.iter().filter(|last| last.at >= first.at) {
                    let most = burst * period + (last.at - first.at) * count;
                    assert!(kept_between(events, first.at, last.at) * period <= most, "{model:?}");
                }
            }
        });
    }
}

#[test]
fn no_order_of_returns_exceeds_a_log() {
    let mut dice = Dice(6);
    for _ in 0..3_000 {
        let (count, period) = (1 + dice.below(20), 1 + dice.below(30));
        let rule = Rule::SlidingLog { count, period, count_all: false };
        random_returns(&rule, &mut dice, Also::Nothing, |model, events, _| {
            for first in events {
                assert!(kept_between(events, first.at, first.at + period - 1) <= count, "{model:?}");
            }
        });
    }
}

#[test]
fn no_order_of_returns_exceeds_a_window() {
    let mut dice = Dice(7);
    for _ in 0..3_000 {
        let (count, period) = (1 + dice.below(20), 1 + dice.below(30));
        let rule = Rule::FixedWindow { count, windows: Windows::Epoch { period } };
        random_returns(&rule, &mut dice, Also::Nothing, |model, events, _| {
            for event in events {
                let start = event.at / period * period;
                assert!(kept_between(events, start, start + period - 1) <= count, "{model:?}");
            }
        });
    }
}
