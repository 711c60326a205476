//! Buckets and pacers under a clock that steps back: what the step would have refilled is missing
//! until then.

use crate::{S, bucket, later, left, no, pacer, yes};
use sluicegate_model::{Initial, Model, Rule};

#[test]
fn a_step_back_lowers_the_level() {
    let mut model = bucket(1, S, 5);
    assert_eq!(model.check(10 * S, 1), yes(5, 4, S));
    assert_eq!(model.check(8 * S, 2), yes(5, 0, 5 * S));
    // The call's own time counts from now on, so nothing was lost by the step.
    assert_eq!(left(&model, 10 * S), 2);
}

#[test]
fn the_level_may_fall_below_zero() {
    let mut model = bucket(1, S, 5);
    model.check(10 * S, 5);
    // Ten tokens in debt at 0, so one is there at 11 s and all five at 15 s.
    assert_eq!(model.check(0, 1), no(5, 0, 11 * S, 15 * S));
    assert!(!model.check(11 * S - 1, 1).allowed);
    assert!(model.check(11 * S, 1).allowed);
}

#[test]
fn a_step_back_takes_at_most_what_was_charged_before() {
    let mut model = bucket(1, S, 5);
    model.check(100 * S, 1);
    assert_eq!(left(&model, 200 * S), 5);
    assert_eq!(left(&model, 101 * S), 5);
    assert_eq!(left(&model, 98 * S), 2);
}

#[test]
fn a_refund_that_finds_the_bucket_full_changes_nothing() {
    let mut model = bucket(1, S, 5);
    model.check(0, 1);
    let before = model.clone();
    assert_eq!(model.refund(10 * S, 3), Some(yes(5, 5, 0)));
    assert_eq!(model, before);
    assert_eq!(left(&model, 5 * S), 5);
}

#[test]
fn a_refund_counts_from_its_own_time() {
    let mut model = bucket(1, S, 5);
    model.check(10 * S, 5);
    // Three tokens in debt at 7 s; a refund of five makes two of it.
    assert_eq!(model.refund(7 * S, 5), Some(yes(5, 2, 3 * S)));
    assert_eq!(left(&model, 8 * S), 3);
}

#[test]
fn an_unseen_key_before_its_start_has_no_debt() {
    let initial = Some(Initial { tokens: 2, start: 50 * S });
    let model = Model::new(vec![Rule::Bucket { count: 1, period: S, burst: 5, initial }]);
    assert_eq!(left(&model, 52 * S), 4);
    assert_eq!(left(&model, 10 * S), 2);
}

#[test]
fn a_pacer_adds_a_step_back_to_the_delay() {
    let mut model = pacer(1, S, 4);
    assert_eq!(model.check(10 * S, 1), later(5, 4, S, 0));
    // Full at 11 s, which is three seconds away again.
    assert_eq!(model.check(8 * S, 1), later(5, 1, 4 * S, 3 * S));
}
