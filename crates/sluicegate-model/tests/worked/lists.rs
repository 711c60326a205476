//! Lists of rules on one key: all or nothing.

use crate::{MS, S, later, left, never, no, reserved, yes};
use sluicegate_model::{Decision, Model, Rule, Windows};

fn bucket_rule(count: u64, burst: u64) -> Rule {
    Rule::Bucket { count, period: S, burst, initial: None }
}

fn window_rule(count: u64) -> Rule {
    Rule::FixedWindow { count, windows: Windows::Epoch { period: 60 * S } }
}

fn by_second(denial: Decision) -> Decision {
    Decision { denied_by: Some(1), ..denial }
}

#[test]
fn the_tightest_rule_is_reported() {
    let mut model = Model::new(vec![bucket_rule(1, 5), window_rule(8)]);
    assert_eq!(model.check(0, 5), yes(5, 0, 5 * S));
    // The bucket denies for 4 s, the window for 60 s.
    assert_eq!(model.check(0, 4), by_second(no(8, 3, 60 * S, 60 * S)));
    assert_eq!(model.check(0, 3), no(5, 0, 3 * S, 5 * S));
    // Neither denial charged anything: 2 + 3 in the bucket, 3 + 5 in the window.
    assert_eq!(model.check(5 * S, 3), yes(8, 0, 55 * S));
    assert_eq!(model.check(5 * S, 6), never(5, 2, 3 * S));
    assert_eq!(model.check(5 * S, 9), never(5, 2, 3 * S));
    assert_eq!(model.check(5 * S, 0), yes(8, 0, 55 * S));
}

#[test]
fn never_is_the_longest_wait_of_all() {
    let mut model = Model::new(vec![window_rule(8), bucket_rule(1, 5)]);
    model.check(0, 5);
    assert_eq!(model.check(0, 6), by_second(never(5, 0, 5 * S)));
}

#[test]
fn on_a_tie_the_first_rule_is_reported() {
    let mut model = Model::new(vec![bucket_rule(1, 5), bucket_rule(1, 5)]);
    assert_eq!(model.check(0, 5), yes(5, 0, 5 * S));
    assert_eq!(model.check(0, 1), no(5, 0, S, 5 * S));
    // Equal remaining, different resets: those of the first rule are reported.
    let mut model = Model::new(vec![bucket_rule(2, 5), bucket_rule(1, 5)]);
    assert_eq!(model.check(0, 5), yes(5, 0, 2_500 * MS));
}

#[test]
fn equal_rules_have_separate_states() {
    let mut model = Model::new(vec![window_rule(5), window_rule(5)]);
    assert_eq!(model.check(0, 3), yes(5, 2, 60 * S));
}

#[test]
fn the_longest_delay_is_reported() {
    let slow = Rule::Pacer { count: 1, period: S, queue: 3 };
    let fast = Rule::Pacer { count: 10, period: S, queue: 3 };
    let mut model = Model::new(vec![fast, slow]);
    assert_eq!(model.check(0, 1), yes(4, 3, 100 * MS));
    assert_eq!(model.check(0, 1), later(4, 2, 200 * MS, S));
    assert_eq!(model.refund(0, 1), None);
}

#[test]
fn a_pacer_in_the_list_rules_out_refunds_for_all() {
    let mut model = Model::new(vec![window_rule(5), Rule::Pacer { count: 1, period: S, queue: 9 }]);
    model.check(0, 3);
    assert_eq!(model.refund(0, 3), None);
    assert_eq!(left(&model, 0), 2);
}

#[test]
fn take_charges_the_least_remaining() {
    let mut model = Model::new(vec![bucket_rule(1, 5), window_rule(8)]);
    assert_eq!(model.take(0, 9), (yes(5, 0, 5 * S), 5));
    assert_eq!(model.take(0, 9), (no(5, 0, S, 5 * S), 0));
    assert_eq!(model.take(5 * S, 9), (yes(8, 0, 55 * S), 3));
    assert_eq!(model.take(5 * S, 9), (by_second(no(8, 0, 55 * S, 55 * S)), 0));
}

#[test]
fn a_refund_goes_to_each_rule() {
    let mut model = Model::new(vec![bucket_rule(1, 5), window_rule(8)]);
    model.check(0, 5);
    assert_eq!(model.refund(0, 4), Some(yes(5, 4, S)));
    model.check(0, 4);
    // 4 + 1 in each, so the window has 3 left and the bucket none.
    assert_eq!(model.check(60 * S - 1, 3), yes(8, 0, 1));
}

#[test]
fn a_reservation_waits_for_the_slowest() {
    let mut model = Model::new(vec![bucket_rule(2, 5), bucket_rule(1, 5)]);
    model.check(0, 5);
    // One second and two seconds; with a max_wait of 500 ms both deny.
    assert_eq!(model.reserve(0, 2, 500 * MS).0, by_second(no(5, 0, 1_500 * MS, 5 * S)));
    assert_eq!(model.reserve(0, 2, 2 * S).0, later(5, 0, 3_500 * MS, 2 * S));
}

#[test]
fn a_cancel_returns_what_each_rule_still_counts() {
    let mut model = Model::new(vec![bucket_rule(1, 5), window_rule(8)]);
    let receipt = reserved(&mut model, 0, 5);
    // The bucket has leaked it all; the window still counts it.
    assert!(model.cancel(10 * S, receipt));
    let receipt = reserved(&mut model, 59 * S, 5);
    // The window has ended; the bucket still counts three.
    assert!(model.cancel(61 * S, receipt));
    assert_eq!(left(&model, 61 * S), 5);
    let receipt = reserved(&mut model, 118 * S, 5);
    assert!(!model.cancel(123 * S, receipt));
}

#[test]
fn whether_a_call_waited_is_recorded_per_rule() {
    // The first bucket is large enough that no call waits.
    let mut model = Model::new(vec![bucket_rule(1, 100), bucket_rule(1, 5)]);
    model.check(0, 5);
    let (_, receipt) = model.reserve(0, 2, 10 * S);
    model.reserve(0, 1, 10 * S);
    let returned = receipt.is_some_and(|receipt| model.cancel(0, receipt));
    assert!(returned);
    // Only the first bucket had its two returned: 6 used there, and still 8 in the second.
    assert_eq!(model.check(0, 95), by_second(never(5, 0, 8 * S)));
    assert_eq!(model.check(0, 1), by_second(no(5, 0, 4 * S, 8 * S)));
    assert_eq!(model.next_window(0), 4 * S);
}

#[test]
fn an_excess_is_charged_to_each_rule() {
    let mut model = Model::new(vec![bucket_rule(1, 5), window_rule(8)]);
    let receipt = reserved(&mut model, 0, 2);
    assert!(model.settle(0, receipt, 7));
    assert_eq!(model.check(0, 1), no(5, 0, 3 * S, 7 * S));
    assert_eq!(model.check(8 * S, 2), by_second(no(8, 1, 52 * S, 52 * S)));
}

#[test]
fn the_next_window_is_the_latest() {
    let mut model = Model::new(vec![bucket_rule(1, 5), window_rule(8)]);
    assert_eq!(model.next_window(10 * S), 60 * S);
    model.check(59 * S + 500 * MS, 5);
    assert_eq!(model.next_window(59 * S + 600 * MS), 60 * S + 500 * MS);
}
