//! Counts and costs up to 10^12, and the bounds on debt.

use crate::{CENTURY, DAY, S, bucket, fixed, log, no, reserved, sliding, yes};
use sluicegate_model::{Concurrency, Leases, Model, Rule, Windows};

const MOST: u64 = 1_000_000_000_000;
const MONTH: u64 = 30 * DAY;
const TEN_YEARS: u64 = 3_650 * DAY;
/// Where time ends.
const LATEST: u64 = 250_000_000_000_000_000;

/// Charges debt, whatever remains.
fn owe(model: &mut Model, now: u64, cost: u64) {
    let receipt = reserved(model, now, 0);
    assert!(model.settle(now, receipt, cost));
}

fn used(model: &Model, now: u64) -> u64 {
    model.usage(now)[0].used
}

#[test]
fn a_month_of_tokens_is_exact_to_the_token() {
    let mut model = fixed(MOST, Windows::Epoch { period: MONTH });
    assert_eq!(model.check(0, MOST - 2), yes(MOST, 2, MONTH));
    assert_eq!(model.check(1, 3), no(MOST, 2, MONTH - 1, MONTH - 1));
    assert_eq!(model.check(1, 2), yes(MOST, 0, MONTH - 1));
}

#[test]
fn a_gigabyte_a_second_is_a_thousand_a_microsecond() {
    let mut model = bucket(1_000_000_000, S, MOST);
    assert_eq!(model.check(0, MOST), yes(MOST, 0, 1_000 * S));
    assert_eq!(model.check(7, 7_001), no(MOST, 7_000, 1, 1_000 * S - 7));
    assert_eq!(model.check(7, 7_000), yes(MOST, 0, 1_000 * S));
}

#[test]
fn the_largest_bucket_at_the_end_of_time() {
    // 10^11 per 10 years are 5 per 15,768 µs, and 10^12 are a century's worth.
    let mut model = bucket(100_000_000_000, TEN_YEARS, MOST);
    assert_eq!(model.check(LATEST, MOST), yes(MOST, 0, CENTURY));
    assert_eq!(model.check(LATEST, 1), no(MOST, 0, 3_154, CENTURY));
    owe(&mut model, LATEST, MOST);
    assert_eq!(used(&model, LATEST), 2 * MOST);
    assert_eq!(model.check(LATEST, 1), no(MOST, 0, CENTURY + 3_154, 2 * CENTURY));
    owe(&mut model, LATEST, 1);
    assert_eq!(used(&model, LATEST), 2 * MOST, "no more than a century");
}

#[test]
fn a_change_of_a_slow_rate_keeps_every_token_of_a_large_debt() {
    // Both counts are primes, so the rates are in lowest terms as they are.
    let mut model = bucket(999_999_929, TEN_YEARS, 1);
    owe(&mut model, LATEST, MOST);
    // One token, and ten periods of debt.
    assert_eq!(used(&model, LATEST), 9_999_999_291);
    model.change(vec![Rule::Bucket { count: 999_999_937, period: TEN_YEARS, burst: 1, initial: None }]);
    model.check(LATEST, 1);
    assert_eq!(used(&model, LATEST), 9_999_999_291);
}

#[test]
fn a_fast_rate_becomes_a_slow_one() {
    let mut model = bucket(1_000_000_000, 1, MOST);
    owe(&mut model, LATEST, MOST);
    owe(&mut model, LATEST, MOST);
    assert_eq!(used(&model, LATEST), 2 * MOST);
    // A century is ten tokens at the new rate, beside the one that the bucket holds.
    model.change(vec![Rule::Bucket { count: 1, period: TEN_YEARS, burst: 1, initial: None }]);
    assert_eq!(model.check(LATEST, 1), no(1, 0, CENTURY + TEN_YEARS, CENTURY + TEN_YEARS));
    assert_eq!(used(&model, LATEST), 11);
}

#[test]
fn a_sliding_window_weights_large_counts_exactly() {
    let mut model = sliding(MOST, TEN_YEARS);
    assert_eq!(model.check(0, MOST), yes(MOST, 0, 2 * TEN_YEARS));
    let half = TEN_YEARS + TEN_YEARS / 2;
    assert_eq!(model.peek(half, 0), yes(MOST, MOST / 2, TEN_YEARS / 2));
    // A second later 3,170.97 less: 499,999,996,829.02 are used.
    assert_eq!(used(&model, half + S), 499_999_996_830);
    assert_eq!(model.peek(half + S, 0).remaining, 500_000_003_170);
}

#[test]
fn a_windows_debt_stops_at_its_bound() {
    let period = 60 * S;
    for mut model in [
        fixed(MOST, Windows::Epoch { period }),
        fixed(MOST, Windows::First { period }),
        sliding(MOST, period),
        log(1_000_000, period),
    ] {
        for expected in [MOST - 1, 2 * MOST - 2, 2 * MOST, 2 * MOST] {
            owe(&mut model, 0, MOST - 1);
            assert_eq!(used(&model, 0), expected, "{model:?}");
        }
        assert_eq!(model.peek(0, 0).remaining, 0);
    }
}

#[test]
fn each_window_has_debt_of_its_own() {
    let mut model = sliding(MOST, 60 * S);
    for window in 0..2 {
        for _ in 0..3 {
            owe(&mut model, window * 60 * S, MOST);
        }
    }
    // The whole of the current window's, and nine tenths of the previous one's.
    assert_eq!(used(&model, 66 * S), 3_800_000_000_000);
}

#[test]
fn a_log_full_of_debt_has_no_entry_for_more() {
    let mut model = log(5, 60 * S);
    owe(&mut model, 0, MOST);
    owe(&mut model, 0, MOST);
    owe(&mut model, 10 * S, 1);
    assert_eq!(model.next_window(10 * S), 60 * S);
    assert_eq!(model.peek(60 * S, 0), yes(5, 5, 0));
}

#[test]
fn as_many_leases_as_tokens() {
    let rule = Concurrency { count: MOST, ttl: Some(S) };
    let mut leases = Leases::default();
    assert_eq!(leases.acquire(rule, 0, MOST - 1).0, yes(MOST, 1, S));
    assert_eq!(leases.acquire(rule, 0, 2).0, no(MOST, 1, S, S));
    assert_eq!(leases.acquire(rule, 0, 1).0, yes(MOST, 0, S));
    assert_eq!(leases.usage(rule, 0).used, MOST);
}
