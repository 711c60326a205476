//! Token bucket, leaky bucket and minimum interval under a clock that runs forward.

use crate::{CENTURY, DAY, MS, S, bucket, left, never, no, waiting, yes};
use sluicegate_model::{Initial, Model, Rule};

#[test]
fn refills_evenly_up_to_its_burst() {
    // 30 per 60 s is one token every 2 s; 15 of them take 30 s.
    let mut model = bucket(30, 60 * S, 15);
    assert_eq!(model.check(0, 15), yes(15, 0, 30 * S));
    assert_eq!(model.check(0, 1), no(15, 0, 2 * S, 30 * S));
    assert_eq!(model.check(2 * S - 1, 1), no(15, 0, 1, 28 * S + 1));
    assert_eq!(model.check(2 * S, 1), yes(15, 0, 30 * S));
    assert_eq!(model.peek(7 * S, 3), no(15, 2, S, 25 * S));
    assert_eq!(model.peek(500 * S, 15), yes(15, 15, 0));
}

#[test]
fn the_leaky_bucket_decides_like_the_token_bucket() {
    let mut funnel = bucket(1, 2 * S, 3);
    assert_eq!(funnel.check(0, 3), yes(3, 0, 6 * S));
    assert_eq!(funnel.check(S, 2), no(3, 0, 3 * S, 5 * S));
    assert_eq!(funnel.check(4 * S, 2), yes(3, 0, 6 * S));
}

#[test]
fn a_minimum_interval_keeps_calls_apart() {
    let mut model = bucket(1, 200 * MS, 1);
    assert_eq!(model.check(5 * S, 1), yes(1, 0, 200 * MS));
    assert_eq!(model.check(5 * S + 199_999, 1), no(1, 0, 1, 1));
    assert_eq!(model.check(5 * S + 200_000, 1), yes(1, 0, 200 * MS));
    assert_eq!(model.check(6 * S, 2), never(1, 1, 0));
}

#[test]
fn seven_per_second_keeps_its_fractions() {
    // One token every 142857.142857... us. The second is due at 285714.28..., so at 285715.
    let mut model = bucket(7, S, 2);
    assert_eq!(model.check(0, 2), yes(2, 0, 285_715));
    assert_eq!(model.check(0, 1), no(2, 0, 142_858, 285_715));
    // Six millionths of a token are left over, so the next wait is a microsecond shorter.
    assert_eq!(model.check(142_858, 1), yes(2, 0, 285_714));
    assert_eq!(model.check(142_858, 1), no(2, 0, 142_857, 285_714));
    assert!(!model.check(285_714, 1).allowed);
    assert!(model.check(285_715, 1).allowed);
}

#[test]
fn the_fastest_bucket_refills_almost_1000_per_microsecond() {
    let most = 999_999_999;
    let mut model = bucket(most, S, most);
    assert_eq!(model.check(0, most), yes(most, 0, S));
    assert_eq!(model.check(0, 1), no(most, 0, 1, S));
    assert_eq!(model.check(0, most), no(most, 0, S, S));
    // 999.999999 tokens after one microsecond.
    assert_eq!(model.check(1, 1_000), no(most, 999, 1, S - 1));
    assert_eq!(model.check(1, 999), yes(most, 0, S));
    // 0.999999 + 999.999999 = 1000.999998 after another.
    assert_eq!(left(&model, 2), 1_000);
}

#[test]
fn a_century_to_fill() {
    let ten_years = 3_650 * DAY;
    let mut model = bucket(1, ten_years, 10);
    assert_eq!(model.check(S, 10), yes(10, 0, CENTURY));
    assert_eq!(model.check(S, 10), no(10, 0, CENTURY, CENTURY));
    assert_eq!(model.check(S + CENTURY - 1, 10), no(10, 9, 1, 1));
    assert_eq!(model.check(S + CENTURY, 10), yes(10, 0, CENTURY));
}

#[test]
fn a_thousand_calls_in_one_microsecond_are_a_thousand_calls() {
    let mut model = bucket(1, S, 1_000);
    for taken in 1..=1_000 {
        assert_eq!(model.check(42, 1), yes(1_000, 1_000 - taken, taken * S));
    }
    assert_eq!(model.check(42, 1), no(1_000, 0, S, 1_000 * S));
}

#[test]
fn a_cost_of_zero_and_one_above_the_limit() {
    let mut model = bucket(1, S, 5);
    assert_eq!(model.check(0, 0), yes(5, 5, 0));
    assert_eq!(model.check(0, 6), never(5, 5, 0));
    assert_eq!(model.check(0, 3), yes(5, 2, 3 * S));
    assert_eq!(model.check(S, 0), yes(5, 3, 2 * S));
    assert_eq!(model.check(S, 6), never(5, 3, 2 * S));
    assert_eq!(model.peek(S, u64::MAX), never(5, 3, 2 * S));
}

#[test]
fn an_unseen_key_may_start_below_full() {
    let start = 100 * S;
    let initial = Some(Initial { tokens: 0, start });
    let mut model = Model::new(vec![Rule::Bucket { count: 50, period: 10 * S, burst: 50, initial }]);
    // Before the start nothing refills: ten seconds to the start, and 200 ms to the first token.
    assert_eq!(model.check(90 * S, 1), no(50, 0, 10 * S + 200 * MS, 20 * S));
    assert_eq!(model.check(start, 1), no(50, 0, 200 * MS, 10 * S));
    assert_eq!(model.next_window(90 * S), start + 200 * MS);
    assert_eq!(model.check(start + 200 * MS, 1), yes(50, 0, 10 * S));
    assert_eq!(model.peek(start + 60 * S, 50), yes(50, 50, 0));
}

#[test]
fn a_key_charged_before_the_start_refills_from_then() {
    let initial = Some(Initial { tokens: 5, start: 100 * S });
    let mut model = Model::new(vec![Rule::Bucket { count: 5, period: S, burst: 50, initial }]);
    assert_eq!(model.peek(90 * S, 5), yes(50, 5, 19 * S));
    assert_eq!(model.check(90 * S, 5), yes(50, 0, 10 * S));
    assert_eq!(model.check(90 * S + 200 * MS, 1), yes(50, 0, 10 * S));
}

#[test]
fn an_unseen_key_may_be_refunded() {
    let initial = Some(Initial { tokens: 5, start: 100 * S });
    let mut model = Model::new(vec![Rule::Bucket { count: 5, period: S, burst: 50, initial }]);
    assert_eq!(model.refund(90 * S, 10), Some(yes(50, 15, 7 * S)));
    assert_eq!(left(&model, 91 * S), 20);
    assert_eq!(model.refund(91 * S, 1_000), Some(yes(50, 50, 0)));
}

#[test]
fn a_refund_stops_at_full() {
    let mut model = bucket(1, S, 5);
    assert_eq!(model.check(0, 4), yes(5, 1, 4 * S));
    assert_eq!(model.refund(S, 1), Some(yes(5, 3, 2 * S)));
    assert_eq!(model.refund(S, 100), Some(yes(5, 5, 0)));
    assert_eq!(model.check(S, 5), yes(5, 0, 5 * S));
    assert_eq!(model.refund(S, 0), Some(yes(5, 0, 5 * S)));
}

#[test]
fn take_charges_what_remains() {
    let mut model = bucket(1, S, 5);
    assert_eq!(model.take(0, 3), (yes(5, 2, 3 * S), 3));
    assert_eq!(model.take(0, 0), (yes(5, 2, 3 * S), 0));
    assert_eq!(model.take(500 * MS, 3), (yes(5, 0, 4_500 * MS), 2));
    assert_eq!(model.take(500 * MS, 9), (no(5, 0, 500 * MS, 4_500 * MS), 0));
}

#[test]
fn the_next_window_is_the_next_whole_token() {
    let mut model = bucket(1, S, 3);
    assert_eq!(model.next_window(7 * S), 7 * S);
    model.check(10 * S, 3);
    assert_eq!(model.next_window(10 * S), 11 * S);
    assert_eq!(model.next_window(10 * S + 1), 11 * S);
    assert_eq!(model.next_window(11 * S), 12 * S);
    assert_eq!(model.next_window(12 * S + 500 * MS), 13 * S);
    assert_eq!(model.next_window(13 * S), 13 * S);
    // Two tokens in debt: the first usable one comes after three.
    waiting(&mut model, 10 * S, 2, 2 * S);
    assert_eq!(model.next_window(10 * S), 13 * S);
}

#[test]
fn a_reset_deletes_everything() {
    let mut model = bucket(1, S, 3);
    model.check(0, 3);
    model.reset();
    assert_eq!(model.peek(0, 3), yes(3, 3, 0));
    assert_eq!(model, bucket(1, S, 3));
}
