//! Open receipts of keys whose rules become others.

use crate::{DAY, S, bucket, fixed, left, log, no, pacer, reserved, sliding, waiting, yes};
use sluicegate_model::{Model, Rule, Windows};

fn bucket_rule(count: u64, period: u64, burst: u64) -> Rule {
    Rule::Bucket { count, period, burst, initial: None }
}

fn log_rule(count: u64) -> Rule {
    Rule::SlidingLog { count, period: 60 * S, count_all: false }
}

fn window_rule(count: u64) -> Rule {
    Rule::FixedWindow { count, windows: Windows::Epoch { period: DAY } }
}

#[test]
fn receipts_survive_a_change_of_parameters() {
    for call_in_between in [true, false] {
        let cases = [
            (bucket(1, DAY, 100), bucket_rule(1, DAY, 200)),
            (bucket(1, DAY, 100), bucket_rule(2, DAY, 200)),
            (fixed(100, Windows::Epoch { period: DAY }), window_rule(200)),
            (log(100, 60 * S), log_rule(200)),
            (sliding(100, 60 * S), Rule::SlidingWindow { count: 200, period: 60 * S }),
        ];
        for (mut model, rule) in cases {
            let settled = reserved(&mut model, 0, 10);
            let cancelled = reserved(&mut model, 0, 10);
            model.change(vec![rule]);
            if call_in_between {
                model.check(0, 1);
            }
            assert!(model.settle(0, settled, 60));
            assert!(model.cancel(0, cancelled));
            assert!(!model.cancel(0, cancelled));
            assert_eq!(left(&model, 0), 140 - u64::from(call_in_between), "{model:?}");
        }
    }
}

#[test]
fn a_bucket_returns_what_has_not_leaked_at_both_rates() {
    for (at, expected) in [(2 * S, 16), (3 * S, 16), (4 * S, 17)] {
        let mut model = bucket(1, S, 20);
        let receipt = reserved(&mut model, 0, 5);
        model.change(vec![bucket_rule(2, S, 20)]);
        // Three have not leaked at 2 s, one at 3 s, none at 4 s.
        assert_eq!(model.check(2 * S, 4), yes(20, 13, 3_500_000));
        assert_eq!(model.cancel(at, receipt), at < 4 * S);
        assert_eq!(left(&model, at), expected);
    }
}

#[test]
fn a_converted_stack_is_returned_in_either_order() {
    for a_first in [true, false] {
        let mut model = bucket(1, 3, 6);
        let a = reserved(&mut model, 0, 3);
        let b = reserved(&mut model, 0, 2);
        model.change(vec![bucket_rule(1, 7, 6)]);
        // At 1 five less a third are used: 32 2/3 sevenths, and 18 2/3 up to the first charge,
        // become 33 and 19.
        assert_eq!(model.check(1, 6).reset_after, 33);
        let (first, second) = if a_first { (a, b) } else { (b, a) };
        assert!(model.cancel(1, first));
        assert_eq!(model.peek(1, 0).reset_after, if a_first { 14 } else { 19 });
        assert!(model.cancel(1, second));
        assert_eq!(model.peek(1, 0), yes(6, 6, 0));
    }
}

#[test]
fn a_waiting_call_that_is_last_stays_last() {
    let mut model = bucket(1, 3, 2);
    model.check(0, 2);
    let a = waiting(&mut model, 0, 1, 3);
    let b = waiting(&mut model, 0, 1, 6);
    model.change(vec![bucket_rule(1, 7, 2)]);
    assert_eq!(model.check(1, 1).reset_after, 26);
    let mut other_order = model.clone();
    assert!(!other_order.cancel(1, a));
    assert!(model.cancel(1, b));
    assert!(model.cancel(1, a));
    // Two tokens less a third are used: 11 2/3 sevenths.
    assert_eq!(model.peek(1, 0), yes(2, 0, 12));

    let mut model = pacer(1, S, 5);
    model.check(0, 1);
    let slot = waiting(&mut model, 0, 1, S);
    model.change(vec![Rule::Pacer { count: 2, period: S, queue: 3 }]);
    assert!(model.cancel(S / 2, slot));
    assert_eq!(model.peek(S / 2, 0), yes(4, 3, S / 4));
}

#[test]
fn what_had_leaked_before_a_step_back_is_not_returned() {
    let mut model = bucket(1, S, 20);
    let receipt = reserved(&mut model, 10 * S, 5);
    model.check(12 * S, 1);
    model.change(vec![bucket_rule(1, 10 * S, 20)]);
    // At 12 s the level is 20 - 4, and back at 2 s one less. Three of the five had not leaked.
    assert_eq!(left(&model, 2 * S), 15);
    assert!(model.cancel(2 * S, receipt));
    assert_eq!(left(&model, 2 * S), 18);
}

#[test]
fn receipts_are_void_where_the_state_starts_fresh() {
    let mut model = bucket(1, S, 5);
    let receipt = reserved(&mut model, 0, 3);
    model.change(vec![log_rule(5)]);
    assert!(!model.settle(0, receipt, 5));
    assert_eq!(left(&model, 0), 5);
    // The settle was a call on the key, so the bucket is gone.
    model.change(vec![bucket_rule(1, S, 5)]);
    assert_eq!(left(&model, 0), 5);
    assert!(!model.cancel(0, receipt));
}

#[test]
fn a_change_back_before_the_next_call_voids_nothing() {
    let mut model = bucket(1, S, 5);
    let receipt = reserved(&mut model, 0, 3);
    model.change(vec![log_rule(5)]);
    assert_eq!(left(&model, 0), 5);
    model.change(vec![bucket_rule(1, S, 5)]);
    assert!(model.cancel(0, receipt));
    assert_eq!(left(&model, 0), 5);
}

#[test]
fn only_the_part_of_a_fresh_limit_is_void() {
    let before = || {
        let mut model = Model::new(vec![bucket_rule(1, S, 5), window_rule(8)]);
        let receipt = reserved(&mut model, 0, 3);
        model.change(vec![log_rule(9), window_rule(10), log_rule(20)]);
        (model, receipt)
    };
    let (mut model, receipt) = before();
    // 5 of 10 in the window, and nothing in the others.
    assert!(model.settle(0, receipt, 5));
    assert_eq!(model.peek(0, 0), yes(10, 5, DAY));
    assert!(model.check(0, 5).allowed);
    model.change(vec![log_rule(9)]);
    assert_eq!(left(&model, 0), 4);

    let (mut model, receipt) = before();
    assert!(model.cancel(0, receipt));
    assert_eq!(model.check(0, 9), yes(9, 0, 60 * S));
}

#[test]
fn a_receipt_follows_a_list_that_shrinks() {
    let mut model = Model::new(vec![bucket_rule(1, S, 5), window_rule(8)]);
    let kept = reserved(&mut model, 0, 3);
    model.change(vec![bucket_rule(1, S, 6)]);
    assert!(model.settle(0, kept, 1));
    assert_eq!(left(&model, 0), 5);

    let mut model = Model::new(vec![bucket_rule(1, S, 5), window_rule(8)]);
    let receipt = reserved(&mut model, 0, 3);
    model.change(vec![log_rule(5)]);
    assert!(!model.cancel(0, receipt));
}

#[test]
fn a_receipt_of_cost_zero_survives_too() {
    let mut model = bucket(1, S, 5);
    let receipt = reserved(&mut model, 0, 0);
    model.change(vec![bucket_rule(1, S, 10)]);
    assert!(model.settle(0, receipt, 12));
    assert_eq!(model.check(0, 1), no(10, 0, 3 * S, 12 * S));
}
