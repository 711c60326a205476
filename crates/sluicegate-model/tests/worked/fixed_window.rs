//! Fixed windows, wherever they lie.

use crate::{DAY, S, fixed, left, never, no, reserved, yes};
use sluicegate_model::{RetryAfter, Windows};

const EPOCH: Windows = Windows::Epoch { period: 60 * S };
const FIRST: Windows = Windows::First { period: 60 * S };
const FROM: Windows = Windows::From { start: 100 * S, period: 60 * S };

#[test]
fn each_window_has_its_count() {
    let mut model = fixed(5, EPOCH);
    assert_eq!(model.check(61 * S, 3), yes(5, 2, 59 * S));
    assert_eq!(model.check(62 * S, 3), no(5, 2, 58 * S, 58 * S));
    assert_eq!(model.check(120 * S - 1, 2), yes(5, 0, 1));
    assert_eq!(model.check(120 * S - 1, 1), no(5, 0, 1, 1));
    assert_eq!(model.check(120 * S, 0), yes(5, 5, 0));
    assert_eq!(model.check(120 * S, 5), yes(5, 0, 60 * S));
    assert_eq!(model.check(130 * S, 6), never(5, 0, 50 * S));
    assert_eq!(model.next_window(130 * S), 180 * S);
    assert_eq!(model.next_window(180 * S), 240 * S);
}

#[test]
fn of_twenty_calls_at_once_five_are_allowed() {
    let mut model = fixed(5, EPOCH);
    let allowed = (0..20).filter(|_| model.check(7, 1).allowed).count();
    assert_eq!(allowed, 5);
}

#[test]
fn the_first_call_opens_the_window() {
    let mut model = fixed(5, FIRST);
    assert_eq!(model.check(10 * S, 0), yes(5, 5, 0));
    assert_eq!(model.next_window(10 * S), 10 * S);
    assert_eq!(model.check(20 * S, 4), yes(5, 1, 60 * S));
    assert_eq!(model.next_window(30 * S), 80 * S);
    assert_eq!(model.check(79 * S, 2), no(5, 1, S, S));
    assert_eq!(model.peek(80 * S, 2), yes(5, 5, 0));
    assert_eq!(model.next_window(85 * S), 85 * S);
    assert_eq!(model.check(90 * S, 2), yes(5, 3, 60 * S));
}

#[test]
fn a_window_refunded_to_zero_is_closed() {
    let mut model = fixed(5, FIRST);
    model.check(20 * S, 4);
    assert_eq!(model.refund(30 * S, 3), Some(yes(5, 4, 50 * S)));
    assert_eq!(model.refund(30 * S, 3), Some(yes(5, 5, 0)));
    assert_eq!(model.next_window(30 * S), 30 * S);
    // The latest time is dropped with the window, so an earlier call opens its own.
    assert_eq!(model.check(10 * S, 1), yes(5, 4, 60 * S));
    assert_eq!(model.next_window(10 * S), 70 * S);
}

#[test]
fn before_the_start_everything_is_denied() {
    let mut model = fixed(5, FROM);
    assert_eq!(model.check(90 * S, 1), no(5, 0, 10 * S, 10 * S));
    assert_eq!(model.check(90 * S, 0), yes(5, 0, 10 * S));
    assert_eq!(model.check(90 * S, 6), never(5, 0, 10 * S));
    assert_eq!(model.take(90 * S, 3), (no(5, 0, 10 * S, 10 * S), 0));
    assert_eq!(model.refund(90 * S, 3), Some(yes(5, 0, 10 * S)));
    assert_eq!(model.next_window(90 * S), 100 * S);
    assert_eq!(model.check(100 * S, 2), yes(5, 3, 60 * S));
    assert_eq!(model.check(170 * S, 5), yes(5, 0, 50 * S));
    assert_eq!(model.next_window(170 * S), 220 * S);
}

#[test]
fn a_debt_before_the_start_has_no_window() {
    let mut model = fixed(5, FROM);
    let receipt = reserved(&mut model, 90 * S, 0);
    assert!(model.settle(90 * S, receipt, 3));
    assert_eq!(model.peek(100 * S, 0), yes(5, 5, 0));
}

#[test]
fn calendar_days_may_have_23_or_25_hours() {
    let hour = 3_600 * S;
    // A day of 23 hours between two of 24.
    let days = vec![10 * DAY, 11 * DAY, 11 * DAY + 23 * hour, 12 * DAY + 23 * hour, 100 * DAY];
    let mut model = fixed(1, Windows::Boundaries(days));
    assert_eq!(model.check(11 * DAY + hour, 1), yes(1, 0, 22 * hour));
    assert_eq!(model.check(11 * DAY + 22 * hour, 1), no(1, 0, hour, hour));
    assert_eq!(model.check(11 * DAY + 23 * hour, 1), yes(1, 0, 24 * hour));
    assert_eq!(model.next_window(12 * DAY), 12 * DAY + 23 * hour);
    // Before the first boundary lies a window as well.
    let mut early = fixed(1, Windows::Boundaries(vec![10 * S, 20 * S]));
    assert_eq!(early.check(4 * S, 1), yes(1, 0, 6 * S));
    // The last boundary's window has no end.
    assert!(early.check(25 * S, 1).allowed);
    assert_eq!(early.check(30 * S, 1).retry_after, Some(RetryAfter::Never));
}

#[test]
fn a_step_back_stays_in_the_latest_window() {
    let mut model = fixed(5, EPOCH);
    model.check(10 * S, 5);
    assert_eq!(model.check(70 * S, 2), yes(5, 3, 50 * S));
    // Decided as at 70 s, but the wait until 120 s is counted from 20 s.
    assert_eq!(model.check(20 * S, 4), no(5, 3, 100 * S, 100 * S));
    assert_eq!(model.check(20 * S, 3), yes(5, 0, 100 * S));
    assert_eq!(model.next_window(20 * S), 120 * S);
    assert_eq!(model.peek(119 * S, 1), no(5, 0, S, S));
}

#[test]
fn the_latest_time_survives_a_refund() {
    let mut model = fixed(5, EPOCH);
    model.check(70 * S, 2);
    assert_eq!(model.refund(20 * S, 9), Some(yes(5, 5, 0)));
    assert_eq!(model.check(20 * S, 1), yes(5, 4, 100 * S));
    // A peek or a denial does not move it.
    assert!(model.peek(300 * S, 1).allowed);
    model.check(300 * S, 6);
    assert_eq!(left(&model, 70 * S), 4);
}

#[test]
fn a_refund_goes_to_the_current_window_only() {
    let mut model = fixed(5, EPOCH);
    model.check(10 * S, 5);
    assert_eq!(model.refund(70 * S, 5), Some(yes(5, 5, 0)));
    // Back in the window that was not touched, as the clock steps back.
    assert_eq!(left(&model, 20 * S), 0);
}

#[test]
fn take_charges_what_remains_in_the_window() {
    let mut model = fixed(5, EPOCH);
    assert_eq!(model.take(10 * S, 3), (yes(5, 2, 50 * S), 3));
    assert_eq!(model.take(10 * S, 3), (yes(5, 0, 50 * S), 2));
    assert_eq!(model.take(10 * S, 3), (no(5, 0, 50 * S, 50 * S), 0));
}
