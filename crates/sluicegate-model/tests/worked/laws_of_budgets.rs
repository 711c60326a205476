//! Laws of budgets, tried on random calls.

use crate::laws::{Dice, random_rule};
use crate::{Model, Rule, S, Windows};
use sluicegate_model::{Call, Keys, ReceiptId, Terms, Then, Ttl};

/// A stream that was granted an estimate and uses up to that.
struct Stream {
    receipt: ReceiptId,
    granted: u64,
    used: u64,
}

/// Concurrent streams on a budget: they reserve an estimate, use it bit by bit, extend, settle, are
/// cancelled, or crash. What crashes before it used anything is returned at its time to live.
///
/// Returns what all of them have used.
fn random_streams(model: &mut Model, dice: &mut Dice, now: &mut u64, step: u64) -> u64 {
    let (mut streams, mut used) = (Vec::<Stream>::new(), 0);
    for _ in 0..100 {
        *now += dice.below(step + 1);
        let place = usize::try_from(dice.below(9)).unwrap_or(0);
        match (dice.below(9), streams.get_mut(place)) {
            (0..=2, Some(stream)) => {
                let part = dice.below(stream.granted - stream.used + 1);
                stream.used += part;
                used += part;
            }
            (3, Some(stream)) => {
                let more = dice.below(9);
                if model.extend(*now, stream.receipt, more, None).is_ok_and(|decision| decision.allowed) {
                    stream.granted += more;
                }
            }
            (4, Some(_)) => {
                let stream = streams.swap_remove(place);
                assert!(model.settle(*now, stream.receipt, stream.used));
            }
            (5, Some(stream)) if stream.used == 0 => {
                model.cancel(*now, stream.receipt);
                streams.swap_remove(place);
            }
            // A crash: nothing more is heard of it.
            (6, Some(_)) => drop(streams.swap_remove(place)),
            (7, _) => {
                let ttl = Some(Ttl { length: 1 + dice.below(50), then: Then::Cancel });
                model.reserve_with(*now, dice.below(20), Terms { max_wait: 0, ttl });
            }
            _ => {
                let (_, receipt, granted) = model.reserve_at_least(*now, 1 + dice.below(20), 1, None);
                streams.extend(receipt.map(|receipt| Stream { receipt, granted, used: 0 }));
            }
        }
    }
    used
}

#[test]
fn streams_never_use_more_than_their_budget() {
    let mut dice = Dice(21);
    for _ in 0..1_000 {
        let (budget, mut now) = (1 + dice.below(200), 1_000);
        let period = 1_000 * S;
        let rule = match dice.below(4) {
            0 => Rule::FixedWindow { count: budget, windows: Windows::Epoch { period } },
            1 => Rule::FixedWindow { count: budget, windows: Windows::First { period } },
            2 => Rule::SlidingWindow { count: budget, period },
            _ => Rule::SlidingLog { count: budget, period, count_all: false },
        };
        let mut model = Model::new(vec![rule]);
        let used = random_streams(&mut model, &mut dice, &mut now, 5);
        assert!(used <= budget, "{used} of {budget}: {model:?}");
    }
}

#[test]
fn streams_never_use_more_than_a_bucket_refills() {
    let mut dice = Dice(22);
    for _ in 0..1_000 {
        let (count, period, burst) = (1 + dice.below(5), 1 + dice.below(9), 1 + dice.below(99));
        let (start, mut now) = (1_000, 1_000);
        let mut model = Model::new(vec![Rule::Bucket { count, period, burst, initial: None }]);
        let used = random_streams(&mut model, &mut dice, &mut now, 3);
        assert!(used * period <= burst * period + (now - start) * count, "{used}: {model:?}");
    }
}

/// A receipt and the moment from which it must be as if cancelled.
type Expiring = (u64, ReceiptId);

/// Then cancel: the key is as if each receipt had been cancelled exactly at its time to live.
#[test]
fn then_cancel_is_a_cancel_at_that_moment() {
    let mut dice = Dice(23);
    for _ in 0..4_000 {
        let rules: Vec<Rule> = (0..=dice.below(2)).map(|_| random_rule(&mut dice)).collect();
        let (mut expiring, mut cancelled) = (Model::new(rules.clone()), Model::new(rules));
        let (mut open, mut now) = (Vec::<Expiring>::new(), 1_000);
        for _ in 0..40 {
            now += dice.below(9);
            // The newest of those at one moment first.
            open.sort_by_key(|(end, receipt)| (*end, std::cmp::Reverse(*receipt)));
            while let Some(&(end, receipt)) = open.first().filter(|(end, _)| *end <= now) {
                open.remove(0);
                cancelled.cancel(end, receipt);
            }
            let (cost, max_wait, length) = (dice.below(8), dice.below(20), 1 + dice.below(30));
            let place = usize::try_from(dice.below(9)).unwrap_or(0);
            match (dice.below(7), open.get(place).copied()) {
                (0, Some((_, receipt))) => {
                    open.remove(place);
                    let settled = (expiring.settle(now, receipt, cost), cancelled.settle(now, receipt, cost));
                    assert_eq!(settled, (true, true));
                }
                (1 | 2, Some((_, receipt))) => {
                    let extended = expiring.extend(now, receipt, cost, Some(length));
                    assert_eq!(extended, cancelled.extend(now, receipt, cost, None));
                    if extended.is_ok_and(|decision| decision.allowed) {
                        open[place].0 = now + length;
                    }
                }
                (3, _) => assert_eq!(expiring.check(now, cost), cancelled.check(now, cost)),
                (4, _) => assert_eq!(expiring.refund(now, cost), cancelled.refund(now, cost)),
                _ => {
                    let ttl = Some(Ttl { length, then: Then::Cancel });
                    let reserved = expiring.reserve_with(now, cost, Terms { max_wait, ttl });
                    assert_eq!(reserved, cancelled.reserve(now, cost, max_wait));
                    open.extend(reserved.1.map(|receipt| (now + length, receipt)));
                }
            }
            assert_eq!(expiring.usage(now), cancelled.usage(now));
            assert_eq!(expiring.peek(now, 3), cancelled.peek(now, 3));
        }
    }
}

/// Not with a wait, after which a later charge keeps a call's time slot.
#[test]
fn nothing_stays_charged_beyond_then_cancel() {
    let mut dice = Dice(24);
    for _ in 0..3_000 {
        let rule = random_rule(&mut dice);
        if matches!(rule, Rule::Pacer { .. } | Rule::Bucket { initial: Some(_), .. }) {
            continue;
        }
        let (mut model, mut now, mut last_end) = (Model::new(vec![rule]), 1_010, 0);
        for _ in 0..dice.below(12) {
            now += dice.below(5);
            let length = 1 + dice.below(20);
            let ttl = Some(Ttl { length, then: Then::Cancel });
            if model.reserve_with(now, dice.below(8), Terms { max_wait: 0, ttl }).0.allowed {
                last_end = last_end.max(now + length);
            }
        }
        let usage = model.usage(last_end.max(now))[0];
        assert_eq!((usage.used, usage.remaining, usage.reset_after), (0, usage.limit, 0), "{model:?}");
    }
}

/// An extension at the moment of its reservation makes it the reservation of the sum.
///
/// Not under a pacer, where the extension is a call of its own behind the first and would have to
/// wait. And not later: a log and windows count the extension at its own time, and a bucket that
/// was full again in between has forgotten the first charge.
#[test]
fn extended_at_once_is_reserved_at_once() {
    let mut dice = Dice(25);
    for _ in 0..6_000 {
        let rule = random_rule(&mut dice);
        if matches!(rule, Rule::Pacer { .. }) {
            continue;
        }
        let (mut extended, mut now) = (Model::new(vec![rule]), 1_010);
        for _ in 0..dice.below(9) {
            now += dice.below(9);
            extended.check(now, dice.below(5));
        }
        let mut at_once = extended.clone();
        let (first, more, used) = (dice.below(6), dice.below(6), dice.below(14));
        let (sum, other) = at_once.reserve(now, first + more, 0);
        let Some(other) = other else {
            continue;
        };
        let receipt = extended.reserve(now, first, 0).1.expect("less than the sum");
        assert_eq!(extended.extend(now, receipt, more, None), Ok(sum));
        for model in [&mut extended, &mut at_once] {
            model.check(now + 1, 2);
        }
        now += dice.below(30);
        assert_eq!(extended.settle(now, receipt, used), at_once.settle(now, other, used));
        for wait in [0, 1, 2, 3, 5, 8, 13, 21, 34] {
            assert_eq!(extended.usage(now + wait), at_once.usage(now + wait), "{extended:?}");
        }
    }
}

#[test]
fn usage_agrees_with_peek_and_changes_nothing() {
    let mut dice = Dice(26);
    for _ in 0..1_000 {
        let rules: Vec<Rule> = (0..=dice.below(3)).map(|_| random_rule(&mut dice)).collect();
        let (mut model, mut receipts, mut now) = (Model::new(rules), Vec::new(), 1_010);
        for _ in 0..30 {
            crate::laws::random_verb(&mut model, &mut receipts, &mut dice, &mut now);
            let ttl = Some(Ttl { length: 1 + dice.below(9), then: Then::Cancel });
            model.reserve_with(now, dice.below(3), Terms { max_wait: 0, ttl });
            let usage = model.usage(now);
            let least = usage.iter().min_by_key(|usage| usage.remaining).expect("a limit");
            let peek = model.peek(now, 0);
            let fields = (least.limit, least.remaining, least.reset_after);
            assert_eq!(fields, (peek.limit, peek.remaining, peek.reset_after), "{model:?}");
            // What is used and what remains make up the limit, once it has started.
            for usage in usage.iter().filter(|_| now >= 1_010) {
                assert_eq!(usage.remaining, usage.limit.saturating_sub(usage.used), "{model:?}");
            }
        }
    }
}

/// A receipt over several keys returns and charges on each what a receipt of its own would.
#[test]
fn a_receipt_over_keys_is_one_on_each() {
    let mut dice = Dice(27);
    for _ in 0..3_000 {
        let rules = [random_rule(&mut dice), random_rule(&mut dice)];
        let mut keys = Keys::default();
        let ids = rules.clone().map(|rule| keys.add(vec![rule]));
        let mut models = rules.map(|rule| Model::new(vec![rule]));
        let (mut open, mut now) = (Vec::<(ReceiptId, [ReceiptId; 2])>::new(), 1_000);
        for _ in 0..30 {
            now = if dice.below(9) == 0 { now - dice.below(20) } else { now + dice.below(6) };
            let costs = [dice.below(6), dice.below(6)];
            let calls = [0, 1].map(|index| Call { key: ids[index], cost: costs[index] });
            let place = usize::try_from(dice.below(6)).unwrap_or(0);
            match (dice.below(4), open.get(place).copied()) {
                (0, Some((receipt, parts))) => {
                    open.remove(place);
                    assert_eq!(keys.settle(now, receipt, &costs), Ok(true));
                    for index in [0, 1] {
                        assert!(models[index].settle(now, parts[index], costs[index]));
                    }
                }
                (1, Some((receipt, parts))) => {
                    let denied = keys.extend(now, receipt, &costs, None).map(|answer| answer.denied_call);
                    for index in [0, 1].into_iter().filter(|_| denied == Ok(None)) {
                        let extended = models[index].extend(now, parts[index], costs[index], None);
                        assert!(extended.is_ok_and(|decision| decision.allowed));
                    }
                    if let Ok(Some(index)) = denied {
                        let denied = models[index].clone().extend(now, parts[index], costs[index], None);
                        assert!(denied.is_ok_and(|decision| !decision.allowed));
                    }
                }
                _ => {
                    let terms = Terms { max_wait: dice.below(9), ttl: None };
                    if let (_, Some(receipt)) = keys.reserve(now, &calls, terms) {
                        let parts = [0, 1].map(|index| {
                            models[index].reserve_with(now, costs[index], terms).1.expect("allowed")
                        });
                        open.push((receipt, parts));
                    }
                }
            }
            for index in [0, 1] {
                assert_eq!(keys.usage(now, ids[index]), models[index].usage(now));
            }
        }
    }
}

/// A charge, and the part of it that stayed.
#[derive(Clone, Copy)]
struct Kept {
    at: u64,
    charged: u64,
}

/// Whatever is extended, settled, cancelled or expires: the key is never better off than if only
/// what was kept had been charged. For windows that a first call opens and for `initial` see the
/// laws without extensions.
#[test]
fn returns_of_extended_receipts_never_create_credit() {
    let mut dice = Dice(28);
    for _ in 0..6_000 {
        let rule = random_rule(&mut dice);
        if matches!(rule, Rule::FixedWindow { windows: Windows::First { .. }, .. }) {
            continue;
        }
        let (mut model, mut now) = (Model::new(vec![rule.clone()]), 1_050);
        let (mut kept, mut open) = (Vec::<Kept>::new(), Vec::<(ReceiptId, Vec<usize>)>::new());
        for _ in 0..30 {
            now += dice.below(9).saturating_sub(3);
            let (cost, place) = (1 + dice.below(7), usize::try_from(dice.below(6)).unwrap_or(0));
            match (dice.below(6), open.get_mut(place)) {
                (0 | 1, Some((receipt, charges))) => {
                    let used = if dice.below(2) == 0 { 0 } else { cost };
                    model.settle(now, *receipt, used);
                    let mut left = used;
                    for charge in charges.iter() {
                        kept[*charge].charged = left.min(kept[*charge].charged);
                        left -= kept[*charge].charged;
                    }
                    kept.push(Kept { at: now, charged: left });
                    open.remove(place);
                }
                (2, Some((receipt, charges))) => {
                    if model.extend(now, *receipt, cost, None).is_ok_and(|decision| decision.allowed) {
                        charges.push(kept.len());
                        kept.push(Kept { at: now, charged: cost });
                    }
                }
                (3, _) => {
                    // Whether it expires before the end or not, it counts as returned.
                    let ttl = Some(Ttl { length: 1 + dice.below(9), then: Then::Cancel });
                    model.reserve_with(now, cost, Terms { max_wait: dice.below(20), ttl });
                }
                _ => {
                    if let (_, Some(receipt)) = model.reserve(now, cost, dice.below(20)) {
                        open.push((receipt, vec![kept.len()]));
                        kept.push(Kept { at: now, charged: cost });
                    }
                }
            }
        }
        let mut twin = Model::new(vec![rule]);
        for Kept { at, charged } in kept {
            let receipt = twin.reserve(at, 0, 0).1.expect("a cost of 0 is allowed");
            twin.settle(at, receipt, charged);
        }
        for wait in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
            let (ours, theirs) = (model.peek(now + wait, 0), twin.peek(now + wait, 0));
            assert!(ours.remaining <= theirs.remaining, "{wait} after {now}: {model:?}\n{twin:?}");
            assert!(ours.reset_after >= theirs.reset_after, "{wait} after {now}: {model:?}\n{twin:?}");
        }
    }
}
