//! Extensions, and times to live.

use crate::{S, bucket, fixed, left, log, no, reserved, waiting, yes};
use sluicegate_model::{Call, Keys, Model, ReceiptId, Rejected, Rule, Terms, Then, Ttl, Windows};

fn with_ttl(model: &mut Model, now: u64, cost: u64, length: u64, then: Then) -> ReceiptId {
    let terms = Terms { max_wait: 0, ttl: Some(Ttl { length, then }) };
    model.reserve_with(now, cost, terms).1.expect("an allowed reservation")
}

fn used(model: &Model, now: u64) -> u64 {
    model.usage(now)[0].used
}

#[test]
fn a_settle_returns_from_the_newest_charge() {
    let mut model = log(10, 60 * S);
    let receipt = reserved(&mut model, 0, 4);
    assert_eq!(model.extend(20 * S, receipt, 3, None), Ok(yes(10, 3, 60 * S)));
    assert!(model.settle(30 * S, receipt, 5));
    // 4 until 60 s, and 1 of the 3 until 80 s.
    assert_eq!((used(&model, 60 * S - 1), used(&model, 60 * S), used(&model, 80 * S)), (5, 1, 0));
}

#[test]
fn each_charge_of_a_receipt_accounts_for_its_full_cost() {
    let mut model = log(10, 60 * S);
    let receipt = reserved(&mut model, 0, 5);
    model.extend(10 * S, receipt, 5, None).expect("an open receipt");
    model.refund(20 * S, 5);
    // The refund took the newest five, which are the five that were not used.
    assert!(model.settle(20 * S, receipt, 5));
    assert_eq!(used(&model, 20 * S), 5);
}

#[test]
fn a_window_that_is_over_returns_nothing() {
    let mut model = fixed(10, Windows::Epoch { period: 60 * S });
    let receipt = reserved(&mut model, 50 * S, 4);
    model.extend(70 * S, receipt, 3, None).expect("an open receipt");
    assert_eq!(used(&model, 70 * S), 3);
    assert!(model.settle(80 * S, receipt, 6));
    assert_eq!(used(&model, 80 * S), 2);
}

#[test]
fn a_denied_extension_leaves_the_receipt_as_it_was() {
    let mut model = bucket(1, S, 5);
    let receipt = with_ttl(&mut model, 0, 4, 2 * S, Then::Cancel);
    assert_eq!(model.extend(S, receipt, 3, Some(9 * S)), Ok(no(5, 2, S, 3 * S)));
    assert_eq!(left(&model, 2 * S), 5, "returned at the old time to live");
}

#[test]
fn cancelled_at_its_time_to_live() {
    let mut model = bucket(1, S, 20);
    let receipt = with_ttl(&mut model, 0, 5, 2 * S, Then::Cancel);
    model.check(0, 5);
    assert_eq!(left(&model, 2 * S - 1), 11);
    // Three have not leaked at 2 s: 12 + 3. Two seconds later two more have been refilled, where a
    // cancel then would only return the one that is left: 14 + 1.
    assert_eq!(left(&model, 2 * S), 15);
    assert_eq!(left(&model, 4 * S), 17);
    let mut cancelled_late = model.clone();
    assert!(!cancelled_late.cancel(4 * S, receipt));
    assert_eq!(left(&cancelled_late, 4 * S), 17);
    assert_eq!(model.check(4 * S, 17), yes(20, 0, 20 * S));
}

#[test]
fn open_before_the_time_to_live_and_not_at_it() {
    for then in [Then::Keep, Then::Cancel] {
        for (now, open) in [(10 * S - 1, true), (10 * S, false), (11 * S, false)] {
            let mut model = log(5, 60 * S);
            let receipt = with_ttl(&mut model, 0, 3, 10 * S, then);
            assert_eq!(model.is_kept(now, receipt), open);
            assert_eq!(model.clone().cancel(now, receipt), open);
            assert_eq!(model.clone().extend(now, receipt, 0, None).is_ok(), open);
            assert_eq!(model.settle(now, receipt, 1), open);
            let expected = if open { 1 } else { [3, 0][usize::from(then == Then::Cancel)] };
            assert_eq!(used(&model, now), expected);
        }
    }
}

#[test]
fn an_extension_restarts_the_time_to_live() {
    // The length that it had, another one, and none.
    for (before, given, open_until) in
        [(Some(10 * S), None, 18 * S), (Some(10 * S), Some(3 * S), 11 * S), (None, Some(3 * S), 11 * S)]
    {
        for cost in [0, 2] {
            let mut model = log(5, 60 * S);
            let ttl = before.map(|length| Ttl { length, then: Then::Cancel });
            let receipt = model.reserve_with(0, 3, Terms { max_wait: 0, ttl }).1.expect("a receipt");
            assert!(model.extend(8 * S, receipt, cost, given).is_ok());
            assert!(model.is_kept(open_until - 1, receipt));
            assert!(!model.is_kept(open_until, receipt));
            let kept = if before.is_none() { 3 + cost } else { 0 };
            assert_eq!(used(&model, open_until), kept);
            assert_eq!(model.extend(open_until, receipt, 1, None), Err(Rejected::NotOpen));
        }
    }
}

#[test]
fn without_a_time_to_live_it_is_kept_for_an_hour_and_while_it_counts() {
    let hour = 3_600 * S;
    let mut model = bucket(1, S, 9_000);
    let small = reserved(&mut model, 0, 5);
    let large = reserved(&mut model, 0, 8_000);
    assert!(model.is_kept(hour - 1, small) && !model.is_kept(hour, small));
    assert!(model.is_kept(8_005 * S - 1, large) && !model.is_kept(8_005 * S, large));
    model.extend(hour, small, 0, None).expect("an open receipt");
    assert!(model.is_kept(2 * hour - 1, small) && !model.is_kept(2 * hour, small));
}

#[test]
fn what_was_noticed_stays_when_the_clock_steps_back() {
    for refunding in [false, true] {
        let mut model = log(5, 60 * S);
        let receipt = with_ttl(&mut model, 0, 3, 10 * S, Then::Cancel);
        if refunding {
            model.refund(10 * S, 1);
        } else {
            assert!(!model.check(10 * S, 9).allowed);
        }
        assert_eq!(used(&model, 9 * S), 0);
        assert!(!model.settle(9 * S, receipt, 3));
    }
}

#[test]
fn a_look_notices_nothing() {
    let mut model = log(5, 60 * S);
    let receipt = with_ttl(&mut model, 0, 3, 10 * S, Then::Cancel);
    assert_eq!(model.peek(10 * S, 5), yes(5, 5, 0));
    assert_eq!(model.check(10 * S, 0), yes(5, 5, 0));
    assert_eq!((used(&model, 10 * S), model.next_window(10 * S)), (0, 10 * S));
    assert_eq!(used(&model, 9 * S), 3);
    assert!(model.settle(9 * S, receipt, 2));
    assert_eq!(used(&model, 10 * S), 2);
}

#[test]
fn each_key_notices_by_itself() {
    let rule = Rule::SlidingLog { count: 5, period: 60 * S, count_all: false };
    let mut keys = Keys::default();
    let [a, b] = [keys.add(vec![rule.clone()]), keys.add(vec![rule])];
    let calls = [a, b].map(|key| Call { key, cost: 3 });
    let ttl = Some(Ttl { length: 10 * S, then: Then::Cancel });
    let receipt = keys.reserve(0, &calls, Terms { max_wait: 0, ttl }).1.expect("a receipt");
    keys.check(10 * S, &[Call { key: a, cost: 1 }]);
    let used = |keys: &Keys, now| [a, b].map(|key| keys.usage(now, key)[0].used);
    assert_eq!((used(&keys, 9 * S), used(&keys, 10 * S)), ([1, 3], [1, 0]));
    // Back before its end: the part of A is void, that of B is settled.
    let mut settled = keys.clone();
    assert_eq!(settled.settle(9 * S, receipt, &[4]), Ok(true));
    assert_eq!(used(&settled, 10 * S), [1, 4]);
    // At its end both have noticed, and stay so.
    assert_eq!(keys.settle(10 * S, receipt, &[4]), Ok(false));
    assert_eq!(used(&keys, 9 * S), [1, 0]);
}

#[test]
fn of_those_that_expire_at_one_moment_the_newest_is_returned_first() {
    let mut model = bucket(1, S, 5);
    model.check(0, 5);
    let ttl = Some(Ttl { length: S, then: Then::Cancel });
    for wait in [3 * S, 4 * S] {
        let terms = Terms { max_wait: wait, ttl };
        let cost = if wait == 3 * S { 3 } else { 1 };
        assert_eq!(model.reserve_with(0, cost, terms).0.delay, wait);
    }
    // A call that waits is only returned while no later one is charged behind it.
    assert_eq!(model.peek(S, 0), yes(5, 1, 4 * S));
    waiting(&mut model, 0, 1, 5 * S);
    assert_eq!(model.peek(S, 0).reset_after, 9 * S);
}

#[test]
fn what_expires_is_returned_under_the_rules_of_then() {
    let mut model = bucket(1, S, 20);
    with_ttl(&mut model, 0, 5, 2 * S, Then::Cancel);
    model.check(0, 10);
    model.change(vec![Rule::Bucket { count: 1, period: 10 * S, burst: 20, initial: None }]);
    // At 2 s 13 were used, and three of them are returned; at 6 s 6 are left of the ten.
    assert_eq!(used(&model, 6 * S), 6);
    assert_eq!(model.check(6 * S, 1), yes(20, 13, 70 * S));
}
