//! Guava's limiter, computed by hand.

use crate::{Model, Rule, S as SECOND};
use sluicegate_model::{Permits, RetryAfter, Smooth};

fn model(count: u64, permits: Permits, initial: Option<u64>) -> Model {
    Model::new(vec![Rule::Smooth(Smooth { count, period: SECOND, permits, initial, start: 0 })])
}

#[test]
fn the_next_caller_pays() {
    let mut model = model(5, Permits::OneSecond, None);
    assert!(model.check(0, 5_000).allowed);
    assert_eq!(model.check(0, 1).retry_after, Some(RetryAfter::After(1_000 * SECOND)));
    let waits = model.check_within(0, 1, 1_000 * SECOND);
    assert_eq!((waits.allowed, waits.delay), (true, 1_000 * SECOND));
    assert_eq!(model.next_window(0), 1_000 * SECOND + 200_000);
    let hasty = model.check_within(0, 1, 1_000 * SECOND);
    assert_eq!(hasty.retry_after, Some(RetryAfter::After(200_000)));
}

#[test]
fn one_second_is_stored() {
    let mut model = model(5, Permits::OneSecond, None);
    assert_eq!(model.peek(600_000, 0).remaining, 3);
    assert_eq!(model.peek(60 * SECOND, 0).remaining, 5);
    assert!((0..6).all(|_| model.check(60 * SECOND, 1).allowed));
    assert!(!model.check(60 * SECOND, 1).allowed);
    assert_eq!(model.peek(60 * SECOND, 0).reset_after, 1_200_000);
}

#[test]
fn it_starts_with_initial_and_can_be_refunded() {
    let mut model = model(5, Permits::Burst(10), Some(7));
    assert_eq!(model.peek(0, 0).remaining, 7);
    assert_eq!(model.refund(0, 2).map(|answer| answer.remaining), Some(9));
    assert_eq!(model.refund(0, 2).map(|answer| answer.remaining), Some(10));
}

/// 10 per second with 4 s: from 40 permits down to 20 takes 4 s, from 20 down to 0 takes 2 s.
#[test]
fn a_warm_up_takes_its_time() {
    let mut model = model(10, Permits::WarmUp { period: 4 * SECOND, cold_thousandths: 3_000 }, None);
    assert_eq!((model.peek(0, 0).limit, model.peek(0, 0).remaining), (40, 40));
    assert!(model.check(0, 20).allowed);
    assert_eq!(model.next_window(0), 4 * SECOND);
    assert!(model.check(4 * SECOND, 20).allowed);
    assert_eq!(model.next_window(4 * SECOND), 6 * SECOND);
    assert!(model.check(6 * SECOND, 1).allowed);
    assert_eq!(model.next_window(6 * SECOND), 6_100_000);
    assert_eq!(model.refund(6 * SECOND, 1), None);
}
