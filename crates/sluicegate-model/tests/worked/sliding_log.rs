//! The sliding log, with and without denied calls.

use crate::{S, left, log, never, no, yes};
use sluicegate_model::{Model, Rule};

fn counting_all(count: u64, period: u64) -> Model {
    Model::new(vec![Rule::SlidingLog { count, period, count_all: true }])
}

#[test]
fn the_oldest_ages_out_first() {
    let mut model = log(5, 60 * S);
    assert_eq!(model.check(0, 2), yes(5, 3, 60 * S));
    assert_eq!(model.check(10 * S, 3), yes(5, 0, 60 * S));
    assert_eq!(model.check(20 * S, 1), no(5, 0, 40 * S, 50 * S));
    assert_eq!(model.check(20 * S, 3), no(5, 0, 50 * S, 50 * S));
    assert_eq!(model.next_window(20 * S), 60 * S);
    assert_eq!(model.check(60 * S - 1, 1), no(5, 0, 1, 10 * S + 1));
    assert_eq!(model.check(60 * S, 1), yes(5, 1, 60 * S));
    assert_eq!(model.next_window(60 * S), 70 * S);
    assert_eq!(model.check(60 * S, 6), never(5, 1, 60 * S));
    assert_eq!(model.peek(120 * S, 5), yes(5, 5, 0));
    assert_eq!(model.next_window(120 * S), 120 * S);
}

#[test]
fn a_thousand_calls_in_one_microsecond_are_a_thousand_calls() {
    let mut model = log(1_000, S);
    let allowed = (0..1_500).filter(|_| model.check(3, 1).allowed).count();
    assert_eq!(allowed, 1_000);
    assert_eq!(model.check(3, 1), no(1_000, 0, S, S));
}

#[test]
fn a_refund_takes_the_newest_first() {
    let mut model = log(5, 60 * S);
    model.check(0, 2);
    model.check(10 * S, 3);
    // One of the newest entry stays, so the wait is still for it.
    assert_eq!(model.refund(20 * S, 2), Some(yes(5, 2, 50 * S)));
    // That one and one of the oldest go.
    assert_eq!(model.refund(20 * S, 2), Some(yes(5, 4, 40 * S)));
    assert_eq!(model.refund(20 * S, 2), Some(yes(5, 5, 0)));
}

#[test]
fn a_step_back_records_at_the_latest_time() {
    let mut model = log(5, 60 * S);
    model.check(100 * S, 2);
    // Recorded at 100 s, so it ages out at 160 s, which is 110 s away.
    assert_eq!(model.check(50 * S, 3), yes(5, 0, 110 * S));
    assert_eq!(model.check(50 * S, 1), no(5, 0, 110 * S, 110 * S));
    assert_eq!(model.check(160 * S - 1, 1), no(5, 0, 1, 1));
    assert_eq!(left(&model, 160 * S), 5);
    assert_eq!(model.next_window(50 * S), 160 * S);
}

#[test]
fn a_refund_ignores_what_has_aged_out() {
    let mut model = log(5, 60 * S);
    model.check(10 * S, 5);
    assert_eq!(model.refund(100 * S, 5), Some(yes(5, 5, 0)));
    // The clock steps back to when the entry still counts.
    assert_eq!(left(&model, 20 * S), 0);
}

#[test]
fn the_latest_time_survives_a_refund() {
    let mut model = log(5, 60 * S);
    model.check(100 * S, 2);
    model.refund(100 * S, 2);
    assert_eq!(model.check(50 * S, 1), yes(5, 4, 110 * S));
}

#[test]
fn take_charges_what_remains() {
    let mut model = log(5, 60 * S);
    assert_eq!(model.take(0, 4), (yes(5, 1, 60 * S), 4));
    assert_eq!(model.take(S, 4), (yes(5, 0, 60 * S), 1));
    assert_eq!(model.take(2 * S, 4), (no(5, 0, 58 * S, 59 * S), 0));
}

#[test]
fn with_count_all_a_denied_call_counts() {
    let mut model = counting_all(5, 60 * S);
    assert_eq!(model.check(0, 4), yes(5, 1, 60 * S));
    // Recorded: 4 at 0 and 2 at 10 s. A peek records nothing.
    assert_eq!(model.peek(10 * S, 2), no(5, 1, 50 * S, 50 * S));
    assert_eq!(model.check(10 * S, 2), no(5, 0, 50 * S, 60 * S));
    // Once the four have aged out there is room for three, but not for four.
    assert_eq!(model.peek(60 * S, 3), yes(5, 3, 10 * S));
    assert_eq!(model.peek(60 * S, 4), no(5, 3, 10 * S, 10 * S));
    // A cost above the limit is not recorded.
    assert_eq!(model.check(60 * S, 6), never(5, 3, 10 * S));
}

#[test]
fn with_count_all_a_caller_that_keeps_trying_stays_denied() {
    let mut model = counting_all(1, 60 * S);
    assert!(model.check(0, 1).allowed);
    for turn in 1..10 {
        assert_eq!(model.check(turn * 30 * S, 1), no(1, 0, 60 * S, 60 * S));
    }
}

#[test]
fn with_count_all_only_the_needed_entries_are_kept() {
    let mut model = counting_all(5, 60 * S);
    model.check(0, 5);
    // 5 at 1 s make up the count alone, so those of 0 are dropped; likewise by 3 + 3 at 2 s and 3
    // s.
    model.check(S, 5);
    assert_eq!(model.next_window(S), 61 * S);
    model.check(2 * S, 3);
    assert_eq!(model.next_window(2 * S), 61 * S);
    model.check(3 * S, 3);
    assert_eq!(model.next_window(3 * S), 62 * S);
    // So a refund of six empties it.
    assert_eq!(model.refund(3 * S, 6), Some(yes(5, 5, 0)));
}

#[test]
fn with_count_all_simultaneous_calls_share_an_entry() {
    let mut model = counting_all(5, 60 * S);
    model.check(0, 5);
    for _ in 0..3 {
        model.check(0, 5);
    }
    // One entry of 20, which a refund of 15 leaves full.
    assert_eq!(model.refund(0, 15), Some(yes(5, 0, 60 * S)));
    assert_eq!(model.refund(0, 1), Some(yes(5, 1, 60 * S)));
}

#[test]
fn with_count_all_a_denied_call_sets_the_latest_time() {
    let mut model = counting_all(5, 60 * S);
    model.check(0, 5);
    model.check(50 * S, 1);
    model.refund(50 * S, 100);
    assert_eq!(model.check(10 * S, 1), yes(5, 4, 100 * S));
}

#[test]
fn with_count_all_take_and_reserve_are_unsupported() {
    let mut model = counting_all(5, 60 * S);
    assert_eq!(model.take(0, 3), (yes(5, 5, 0), 0));
    assert_eq!(model.reserve(0, 3, 0), (yes(5, 5, 0), None));
    assert_eq!(left(&model, 0), 5);
}
