//! Rules that become others while keys are in use.

use crate::{CENTURY, MS, S, bucket, fixed, later, left, log, never, no, pacer, sliding, yes};
use sluicegate_model::{Initial, Model, Permits, Rule, Smooth, Windows};

const HOUR: u64 = 3_600 * S;

fn bucket_rule(count: u64, period: u64, burst: u64) -> Rule {
    Rule::Bucket { count, period, burst, initial: None }
}

fn log_rule(count: u64, period: u64) -> Rule {
    Rule::SlidingLog { count, period, count_all: false }
}

fn window_rule(count: u64, windows: Windows) -> Rule {
    Rule::FixedWindow { count, windows }
}

#[test]
fn a_bucket_leaks_at_the_old_rate_until_the_next_call() {
    let mut model = bucket(1, S, 10);
    model.check(0, 10);
    model.change(vec![bucket_rule(2, S, 10)]);
    // Peeks report under the new rate: 6 and 4 used, which take 3 and 2 seconds.
    assert_eq!(model.peek(4 * S, 0), yes(10, 4, 3 * S));
    assert_eq!(model.peek(6 * S, 0), yes(10, 6, 2 * S));
    assert_eq!(model.next_window(4 * S), 4 * S + 500 * MS);
    // The call converts: 10 used, and two leak per second.
    assert_eq!(model.check(4 * S, 4), yes(10, 0, 5 * S));
    assert_eq!(model.peek(6 * S, 0), yes(10, 4, 3 * S));
}

#[test]
fn a_lower_rate_holds_from_the_next_call_on() {
    let mut model = bucket(2, S, 10);
    model.check(0, 10);
    model.change(vec![bucket_rule(1, S, 10)]);
    assert_eq!(model.check(2 * S, 5), no(10, 4, S, 6 * S));
    assert_eq!(model.check(3 * S - 1, 5), no(10, 4, 1, 5 * S + 1));
    assert_eq!(model.check(3 * S, 5), yes(10, 0, 10 * S));
}

#[test]
fn a_denied_call_converts_and_a_peek_does_not() {
    let mut model = bucket(1, HOUR, 5);
    model.check(0, 5);
    model.change(vec![bucket_rule(1, S, 5)]);
    // Not converted: 5 s at the old rate leak 5 / 3600.
    assert_eq!(model.peek(0, 5), no(5, 0, 5 * S, 5 * S));
    assert_eq!(model.peek(5 * S, 5), no(5, 0, 4_998_612, 4_998_612));
    assert_eq!(model.check(5 * S, 0), yes(5, 0, 4_998_612));
    assert_eq!(model.check(0, 5), no(5, 0, 5 * S, 5 * S));
    assert_eq!(model.check(5 * S, 5), yes(5, 0, 5 * S));
}

#[test]
fn what_was_used_stays_used() {
    let windows = Windows::Epoch { period: 60 * S };
    let cases = [
        (bucket(1, HOUR, 5), bucket_rule(1, HOUR, 8)),
        (fixed(5, windows.clone()), window_rule(8, windows)),
        (log(5, 60 * S), log_rule(8, 60 * S)),
        (sliding(5, 60 * S), Rule::SlidingWindow { count: 8, period: 60 * S }),
    ];
    for (mut model, rule) in cases {
        model.check(0, 5);
        model.change(vec![rule]);
        assert_eq!((model.peek(0, 0).limit, left(&model, 0)), (8, 3), "{model:?}");
        assert!(model.check(0, 3).allowed);
        assert!(!model.check(0, 1).allowed);
    }
}

#[test]
fn more_may_be_used_than_the_new_limit() {
    let mut model = bucket(1, S, 10);
    model.check(0, 10);
    model.change(vec![bucket_rule(1, S, 4)]);
    assert_eq!(model.check(0, 1), no(4, 0, 7 * S, 10 * S));
    assert_eq!(model.check(7 * S, 1), yes(4, 0, 4 * S));

    let mut model = fixed(10, Windows::First { period: 60 * S });
    model.check(5 * S, 10);
    model.change(vec![window_rule(4, Windows::First { period: 60 * S })]);
    assert_eq!(model.check(30 * S, 1), no(4, 0, 35 * S, 35 * S));
    assert_eq!(model.refund(30 * S, 6), Some(yes(4, 0, 35 * S)));
    assert_eq!(model.refund(30 * S, 1), Some(yes(4, 1, 35 * S)));

    let mut model = sliding(10, 60 * S);
    model.check(30 * S, 8);
    model.change(vec![Rule::SlidingWindow { count: 6, period: 60 * S }]);
    // Half of the 8 are left at 90 s.
    assert_eq!(model.peek(90 * S, 0), yes(6, 2, 30 * S));
}

#[test]
fn debt_stops_at_a_century_of_the_new_rate() {
    let mut model = bucket(1, S, 10);
    let (_, receipt) = model.reserve(0, 10, 0);
    receipt.map(|receipt| model.settle(0, receipt, 1_000_000_000));
    model.change(vec![bucket_rule(1, HOUR, 10)]);
    // A billion hours are more than a century; ten hours fill the bucket from empty.
    assert_eq!(model.check(0, 1), no(10, 0, CENTURY + HOUR, CENTURY + 10 * HOUR));
    let most = 1_000_000_000_000;
    model.change(vec![bucket_rule(most, 1, most)]);
    model.change(vec![bucket_rule(1, 3_650 * crate::DAY, 10)]);
    // The debt is 876 000 hours, now of ten years each.
    assert_eq!(model.check(0, 1), no(10, 0, CENTURY + CENTURY / 10, 2 * CENTURY));
}

#[test]
fn only_the_last_of_several_changes_counts() {
    let mut model = bucket(1, S, 10);
    model.check(0, 10);
    let unchanged = model.clone();
    model.change(vec![bucket_rule(100, S, 10)]);
    assert_eq!(model.peek(4 * S, 0), yes(10, 4, 60 * MS));
    model.change(vec![log_rule(3, 60 * S)]);
    assert_eq!(model.peek(4 * S, 0), yes(3, 3, 0));
    model.change(vec![bucket_rule(1, S, 10)]);
    assert_eq!(model, unchanged);
}

#[test]
fn a_rate_may_be_written_in_another_way() {
    let mut model = bucket(2, S, 10);
    model.check(0, 10);
    let unchanged = model.clone();
    model.change(vec![bucket_rule(120, 60 * S, 10)]);
    assert_eq!(model.check(1, 7), unchanged.peek(1, 7));
    for now in [1, 2, S - 1, S, 5 * S] {
        assert_eq!(model.peek(now, 4), unchanged.peek(now, 4));
    }
}

#[test]
fn another_algorithm_or_another_place_of_windows_starts_fresh() {
    let epoch = Windows::Epoch { period: 60 * S };
    let from = |start| Windows::From { start, period: 60 * S };
    let cases = [
        (bucket(1, S, 5), Rule::Pacer { count: 1, period: S, queue: 4 }),
        (bucket(1, S, 5), Rule::LeakyBucket { count: 1, period: S, capacity: 5 }),
        (pacer(1, S, 4), bucket_rule(1, S, 5)),
        (bucket(1, S, 5), log_rule(5, 60 * S)),
        (log(5, 60 * S), Rule::SlidingWindow { count: 5, period: 60 * S }),
        (sliding(5, 60 * S), Rule::SlidingWindow { count: 5, period: 61 * S }),
        (fixed(5, epoch.clone()), window_rule(5, Windows::Epoch { period: 30 * S })),
        (fixed(5, epoch.clone()), window_rule(5, Windows::First { period: 60 * S })),
        (fixed(5, from(0)), window_rule(5, from(60 * S))),
        (fixed(5, epoch), window_rule(5, Windows::Boundaries(vec![0, 60 * S]))),
    ];
    for (mut model, rule) in cases {
        model.check(61 * S, 5);
        model.change(vec![rule.clone()]);
        assert_eq!(left(&model, 61 * S), 5, "{model:?}");
        model.check(61 * S, 6);
        assert_eq!(model, Model::new(vec![rule]));
    }
}

#[test]
fn a_log_keeps_the_calls_that_count_when_its_period_changes() {
    let mut model = log(5, 60 * S);
    model.check(0, 3);
    model.check(50 * S, 2);
    model.change(vec![log_rule(5, 120 * S)]);
    // Both calls count at 59 s, and the second ages out at 170 s. At 61 s the first one does not.
    assert_eq!(model.peek(59 * S, 1), no(5, 0, 61 * S, 111 * S));
    assert_eq!(model.check(61 * S, 3), yes(5, 0, 120 * S));
    assert_eq!(model.check(61 * S, 1), no(5, 0, 109 * S, 120 * S));

    let mut model = log(5, 60 * S);
    model.check(0, 3);
    model.check(50 * S, 2);
    model.change(vec![log_rule(5, 20 * S)]);
    assert_eq!(model.check(55 * S, 3), yes(5, 0, 20 * S));
    // Under the old period again: what aged out in between is gone for good.
    model.change(vec![log_rule(5, 60 * S)]);
    assert_eq!(model.check(56 * S, 1), no(5, 0, 54 * S, 59 * S));
}

#[test]
fn whether_denied_calls_count_is_a_parameter() {
    let counts_all = |count| Rule::SlidingLog { count, period: 60 * S, count_all: true };
    let mut model = log(5, 60 * S);
    model.check(0, 5);
    model.change(vec![counts_all(5)]);
    // At 60 s the five age out, and the two that were denied are left.
    assert_eq!(model.check(10 * S, 2), no(5, 0, 50 * S, 60 * S));
    model.change(vec![log_rule(5, 60 * S)]);
    // Five at 0 s, two at 10 s.
    assert_eq!(model.check(10 * S, 3), no(5, 0, 50 * S, 60 * S));
    assert_eq!(model.check(60 * S, 3), yes(5, 0, 60 * S));
}

#[test]
fn waiting_calls_of_a_pacer_leave_at_the_new_rate() {
    let mut model = pacer(1, S, 5);
    model.check(0, 1);
    model.check(0, 1);
    assert_eq!(model.check(0, 1), later(6, 3, 3 * S, 2 * S));
    model.change(vec![Rule::Pacer { count: 2, period: S, queue: 5 }]);
    assert_eq!(model.next_window(0), 1_500 * MS);
    assert_eq!(model.check(0, 1), later(6, 2, 2 * S, 1_500 * MS));
    model.change(vec![Rule::Pacer { count: 1, period: S, queue: 2 }]);
    assert_eq!(model.check(0, 1), no(3, 0, 2 * S, 4 * S));
}

#[test]
fn initial_is_for_unseen_keys() {
    let initial = |tokens| Some(Initial { tokens, start: 0 });
    let rule = |burst, tokens| Rule::Bucket { count: 1, period: S, burst, initial: initial(tokens) };
    let mut model = Model::new(vec![rule(10, 4)]);
    model.change(vec![rule(10, 0)]);
    assert_eq!(left(&model, 0), 0);
    assert_eq!(left(&model, 3 * S), 3);
    model.change(vec![rule(10, 4)]);
    model.check(0, 1);
    // Three left, so seven used.
    model.change(vec![rule(20, 0)]);
    assert_eq!(left(&model, 0), 13);
    model.change(vec![rule(10, 0)]);
    assert_eq!(left(&model, 0), 3);
}

#[test]
fn used_tokens_are_rounded_up() {
    let mut model = bucket(1, 3, 1);
    model.check(0, 1);
    model.change(vec![bucket_rule(1, 2, 1)]);
    // Two thirds used are four thirds of a half, and become two halves.
    assert_eq!(model.check(1, 1), no(1, 0, 2, 2));
    model.change(vec![bucket_rule(1, 3, 1)]);
    // One half used is one and a half thirds, and becomes two thirds. Without the first change it
    // would be one third.
    assert_eq!(model.check(2, 1), no(1, 0, 2, 2));
}

#[test]
fn a_step_back_is_converted_too() {
    let mut model = bucket(1, S, 10);
    model.check(10 * S, 5);
    model.change(vec![bucket_rule(2, S, 10)]);
    // At 10 s five tokens were used, which take 2.5 s at the new rate. The step of 4 s stays 4 s.
    assert_eq!(model.check(6 * S, 2), no(10, 0, 2_500 * MS, 6_500 * MS));
    assert_eq!(model.peek(8 * S, 0), yes(10, 1, 4_500 * MS));

    let mut model = log(5, 60 * S);
    model.check(0, 2);
    model.check(61 * S, 3);
    model.change(vec![log_rule(6, 120 * S)]);
    // Decided as at 61 s, when the first call had aged out.
    assert_eq!(model.check(30 * S, 4), no(6, 3, 151 * S, 151 * S));
}

#[test]
fn smooth_follows_set_rate() {
    let rule = |count, permits| Rule::Smooth(Smooth { count, period: S, permits, initial: None, start: 0 });
    let mut model = Model::new(vec![rule(10, Permits::OneSecond)]);
    // Five permits are stored at 500 ms. Eight cost three fresh ones.
    assert_eq!(model.check(500 * MS, 8), yes(10, 0, 1_300 * MS));
    model.change(vec![rule(20, Permits::OneSecond)]);
    assert_eq!(model.peek(500 * MS, 1), no(20, 0, 300 * MS, 1_300 * MS));
    // At 1 s two of ten are stored: four of twenty.
    assert_eq!(model.peek(S, 0), yes(20, 4, 800 * MS));
    assert_eq!(model.check(S, 5), yes(20, 0, 1_050 * MS));
    // At 1 450 ms eight of twenty are stored: two of five.
    model.change(vec![rule(20, Permits::Burst(5))]);
    assert_eq!(model.peek(1_450 * MS, 0), yes(5, 2, 150 * MS));
    // A key that was never charged is as if created with the new parameters.
    let mut unseen = Model::new(vec![rule(10, Permits::OneSecond)]);
    unseen.change(vec![rule(20, Permits::OneSecond)]);
    assert_eq!(left(&unseen, 500 * MS), 10);
}

#[test]
fn lists_are_matched_by_position() {
    let epoch = Windows::Epoch { period: 60 * S };
    let window = |count| window_rule(count, epoch.clone());
    let mut model = Model::new(vec![bucket_rule(1, S, 5), window(8)]);
    model.check(0, 5);
    // The second limit is new at its position, and the third is new.
    model.change(vec![bucket_rule(1, S, 9), bucket_rule(1, S, 5), window(8)]);
    assert_eq!(model.check(0, 4), yes(9, 0, 9 * S));
    assert_eq!(model.peek(0, 6), never(5, 1, 4 * S).by(1));
    assert_eq!(model.peek(10 * S, 4), yes(8, 4, 50 * S));
    // The window's count of four is gone with its position, and does not come back.
    model.change(vec![bucket_rule(1, S, 9)]);
    assert_eq!(model.check(10 * S, 1), yes(9, 8, S));
    model.change(vec![bucket_rule(1, S, 9), bucket_rule(1, S, 9), window(8)]);
    assert_eq!(model.peek(11 * S, 8), yes(8, 8, 0));
}

trait DeniedBy {
    fn by(self, position: usize) -> Self;
}

impl DeniedBy for sluicegate_model::Decision {
    fn by(self, position: usize) -> Self {
        Self { denied_by: Some(position), ..self }
    }
}
