//! What was used of each limit.

use crate::{S, bucket, fixed, log, pacer, reserved, sliding};
use sluicegate_model::{
    Concurrency, Keys, Leases, Model, Permits, Rule, Smooth, UNLIMITED, Usage, Window, Windows,
};

fn usage(limit: u64, used: u64, remaining: u64, reset_after: u64) -> Usage {
    Usage { limit, used, remaining, reset_after, window: None }
}

fn in_window(start: u64, end: u64, usage: Usage) -> Usage {
    Usage { window: Some(Window { start, end }), ..usage }
}

#[test]
fn fractions_of_a_token_are_used_up() {
    let mut model = bucket(1, S, 5);
    model.check(0, 3);
    // 2.5 of 5 are used.
    assert_eq!(model.usage(S / 2), [usage(5, 3, 2, 2_500_000)]);
    assert_eq!(model.usage(3 * S), [usage(5, 0, 5, 0)]);
}

#[test]
fn debt_is_used_beyond_the_limit() {
    let mut model = bucket(1, S, 5);
    let receipt = reserved(&mut model, 0, 5);
    model.settle(0, receipt, 9);
    assert_eq!(model.usage(0), [usage(5, 9, 0, 9 * S)]);
    let mut model = log(5, 60 * S);
    let receipt = reserved(&mut model, 0, 5);
    model.settle(10 * S, receipt, 9);
    assert_eq!(model.usage(20 * S), [usage(5, 9, 0, 50 * S)]);
    assert_eq!(model.usage(60 * S), [usage(5, 4, 1, 10 * S)]);
}

#[test]
fn a_pacer_counts_the_call_that_does_not_wait() {
    let mut model = pacer(1, S, 4);
    model.check(0, 1);
    assert_eq!(model.usage(0), [usage(5, 1, 4, S)]);
}

#[test]
fn a_fixed_window_says_where_it_lies() {
    let mut model = fixed(5, Windows::Epoch { period: 60 * S });
    model.check(70 * S, 2);
    assert_eq!(model.usage(80 * S), [in_window(60 * S, 120 * S, usage(5, 2, 3, 40 * S))]);
    assert_eq!(model.usage(120 * S), [in_window(120 * S, 180 * S, usage(5, 0, 5, 0))]);
    // The clock stepped back: the window of the latest call is still the current one.
    assert_eq!(model.usage(50 * S), [in_window(60 * S, 120 * S, usage(5, 2, 3, 70 * S))]);
}

#[test]
fn a_window_that_is_not_open_has_no_place() {
    let mut model = fixed(5, Windows::First { period: 60 * S });
    assert_eq!(model.usage(0), [usage(5, 0, 5, 0)]);
    model.check(7 * S, 2);
    assert_eq!(model.usage(7 * S), [in_window(7 * S, 67 * S, usage(5, 2, 3, 60 * S))]);
    assert_eq!(model.usage(67 * S), [usage(5, 0, 5, 0)]);

    let mut model = fixed(5, Windows::From { start: 10 * S, period: 60 * S });
    assert_eq!(model.usage(4 * S), [usage(5, 0, 0, 6 * S)]);
    model.check(10 * S, 2);
    assert_eq!(model.usage(10 * S), [in_window(10 * S, 70 * S, usage(5, 2, 3, 60 * S))]);
    assert_eq!(model.usage(4 * S), [usage(5, 0, 0, 6 * S)], "closed again");
}

#[test]
fn a_sliding_window_counts_a_share_of_the_previous_one() {
    let mut model = sliding(1_000, 60 * S);
    model.check(0, 901);
    // At 90 s half of it: 450.5.
    let half = usage(1_000, 451, 549, 30 * S);
    assert_eq!(model.usage(90 * S), [in_window(60 * S, 120 * S, half)]);
}

#[test]
fn smooth_has_used_what_is_not_stored() {
    let permits = Permits::OneSecond;
    let rule = Smooth { count: 10, period: S, permits, initial: Some(4), start: 0 };
    assert_eq!(Model::new(vec![Rule::Smooth(rule)]).usage(0), [usage(10, 6, 4, 600_000)]);
}

#[test]
fn a_list_has_one_entry_per_limit() {
    let mut model = Model::new(vec![
        Rule::Bucket { count: 1, period: S, burst: 5, initial: None },
        Rule::FixedWindow { count: 8, windows: Windows::Epoch { period: 60 * S } },
    ]);
    model.check(0, 3);
    assert_eq!(model.usage(S), [usage(5, 2, 3, 2 * S), in_window(0, 60 * S, usage(8, 3, 5, 59 * S))]);
}

#[test]
fn a_key_without_limits_is_unlimited() {
    let mut keys = Keys::default();
    let key = keys.add(Vec::new());
    assert_eq!(keys.usage(0, key), [usage(UNLIMITED, 0, UNLIMITED, 0)]);
    assert_eq!(keys.take(0, key, 7).1, 7);
}

#[test]
fn leases_are_used_while_they_are_held() {
    let rule = Concurrency { count: 5, ttl: Some(10 * S) };
    let mut leases = Leases::default();
    leases.acquire(rule, 0, 2);
    leases.acquire(rule, 4 * S, 1);
    assert_eq!(leases.usage(rule, 4 * S), usage(5, 3, 2, 10 * S));
    assert_eq!(leases.usage(rule, 10 * S), usage(5, 1, 4, 4 * S));
}
