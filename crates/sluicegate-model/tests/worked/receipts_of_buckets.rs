//! Reserving on buckets, and cancelling or settling later, in every order.

use crate::{CENTURY, DAY, S, bucket, later, left, never, no, reserved, waiting, yes};

const TEN_YEARS: u64 = 3_650 * DAY;

#[test]
fn a_bucket_lends_to_a_call_that_waits() {
    let mut model = bucket(1, S, 5);
    model.check(0, 5);
    assert_eq!(model.reserve(0, 3, 2 * S), (no(5, 0, S, 5 * S), None));
    assert_eq!(model.reserve(0, 3, 0).0, no(5, 0, 3 * S, 5 * S));
    assert_eq!(model.reserve(0, 6, 60 * S).0, never(5, 0, 5 * S));
    let (answer, receipt) = model.reserve(0, 3, 3 * S);
    assert_eq!(answer, later(5, 0, 8 * S, 3 * S));
    assert!(receipt.is_some());
    assert_eq!(model.check(0, 1), no(5, 0, 4 * S, 8 * S));
    assert_eq!(model.reserve(0, 0, 0).0, yes(5, 0, 8 * S));
}

#[test]
fn no_call_waits_longer_than_a_century() {
    let mut model = bucket(1, TEN_YEARS, 10);
    model.check(0, 10);
    assert_eq!(model.reserve(0, 10, u64::MAX).0, later(10, 0, 2 * CENTURY, CENTURY));
    // 110 years away, and the longest wait is 100.
    assert_eq!(model.reserve(0, 1, u64::MAX), (no(10, 0, TEN_YEARS, 2 * CENTURY), None));
}

#[test]
fn a_cancel_returns_what_has_not_leaked() {
    for (wait, returned) in [(0, true), (2 * S, true), (5 * S - 1, true), (5 * S, false), (9 * S, false)] {
        let mut model = bucket(1, S, 20);
        let receipt = reserved(&mut model, 0, 5);
        assert_eq!(model.cancel(wait, receipt), returned);
        assert_eq!(model.peek(wait, 0), yes(20, 20, 0));
        assert!(!model.cancel(wait, receipt), "used up");
    }
}

#[test]
fn fractions_of_a_token_are_returned_too() {
    let mut model = bucket(7, S, 2);
    let receipt = reserved(&mut model, 0, 1);
    model.check(0, 1);
    // At 100 ms the level is 0.7, and 0.3 of the reservation have not leaked: exactly one token.
    assert!(model.cancel(100_000, receipt));
    assert_eq!(model.peek(100_000, 1), yes(2, 1, 142_858));
}

#[test]
fn two_receipts_in_either_order() {
    for a_first in [true, false] {
        let mut model = bucket(1, S, 20);
        let a = reserved(&mut model, 0, 5);
        let b = reserved(&mut model, 0, 5);
        let (first, second) = if a_first { (a, b) } else { (b, a) };
        assert!(model.cancel(2 * S, first));
        // Of A three have not leaked (12 + 3); of B, which lies on top, all five (12 + 5).
        assert_eq!(left(&model, 2 * S), if a_first { 15 } else { 17 });
        assert!(model.cancel(2 * S, second));
        assert_eq!(left(&model, 2 * S), 20);
    }
}

#[test]
fn cancelling_across_calls_keeps_the_last_charge() {
    let mut model = bucket(1, S, 20);
    let a = reserved(&mut model, 0, 5);
    let b = reserved(&mut model, 4 * S, 5);
    assert!(model.cancel(4 * S, a));
    model.check(8 * S, 5);
    assert!(model.cancel(8 * S, b));
    assert_eq!(left(&model, 8 * S), 15);
}

#[test]
fn a_refund_is_not_returned_again_by_a_cancel() {
    let mut model = bucket(1, S, 20);
    let a = reserved(&mut model, 0, 5);
    model.refund(0, 3);
    model.check(0, 5);
    assert!(model.cancel(0, a));
    assert_eq!(left(&model, 0), 15);

    let mut model = bucket(1, S, 20);
    let a = reserved(&mut model, 0, 5);
    model.refund(0, 5);
    model.check(0, 5);
    assert!(!model.cancel(0, a));
    assert_eq!(left(&model, 0), 15);
}

#[test]
fn a_cancel_moves_later_charges_up() {
    let mut model = bucket(1, 3, 6);
    let a = reserved(&mut model, 1, 5);
    let b = reserved(&mut model, 3, 1);
    let c = reserved(&mut model, 5, 1);
    // Full at 16, 19 and 22 after them. Ten of the first have not leaked, so the others end at 9
    // and 12.
    assert!(model.cancel(6, a));
    assert_eq!(model.peek(6, 0), yes(6, 4, 6));
    model.check(9, 1);
    assert!(!model.cancel(9, b));
    model.check(10, 3);
    assert_eq!(model.peek(11, 0), yes(6, 1, 13));
    // One of the third has not leaked. Without the three it would be full at 9 + 3 + 9 = 21.
    assert!(model.cancel(11, c));
    assert_eq!(model.peek(11, 0), yes(6, 2, 12));
}

#[test]
fn a_refund_of_two_is_not_cancelled_twice() {
    for a_first in [true, false] {
        let mut model = bucket(1, S, 20);
        let a = reserved(&mut model, 0, 5);
        let b = reserved(&mut model, 0, 5);
        model.refund(0, 8);
        model.check(0, 5);
        let (first, second) = if a_first { (a, b) } else { (b, a) };
        assert!(model.cancel(0, first));
        assert!(!model.cancel(0, second));
        assert_eq!(left(&model, 0), 15);
    }
}

#[test]
fn a_cancel_after_a_refund_returns_the_rest() {
    let mut model = bucket(1, S, 20);
    let a = reserved(&mut model, 0, 10);
    let b = reserved(&mut model, 0, 5);
    model.refund(0, 3);
    // 12 are used. Without B the refund would have left 7 of A, and so does the cancel.
    assert!(model.cancel(0, b));
    assert_eq!(left(&model, 0), 13);
    model.check(0, 4);
    assert!(model.cancel(0, a));
    assert_eq!(left(&model, 0), 16);
}

#[test]
fn a_waiting_call_below_another_returns_nothing() {
    let mut model = bucket(1, S, 5);
    model.check(0, 5);
    let a = waiting(&mut model, 0, 3, 3 * S);
    waiting(&mut model, 0, 1, 4 * S);
    assert!(!model.cancel(0, a));
    assert_eq!(model.peek(0, 1), no(5, 0, 5 * S, 9 * S));
    assert!(!model.settle(0, a, 1), "used up");
}

#[test]
fn a_waiting_call_that_is_last_is_returned() {
    let mut model = bucket(1, S, 5);
    model.check(0, 5);
    let a = waiting(&mut model, 0, 3, 3 * S);
    let b = waiting(&mut model, 0, 1, 4 * S);
    assert!(model.cancel(S, b));
    assert!(model.cancel(S, a));
    // As if neither call had been made: one second of refilling.
    assert_eq!(model.peek(S, 0), yes(5, 1, 4 * S));
}

#[test]
fn a_call_that_did_not_wait_is_returned_below_another() {
    let mut model = bucket(1, S, 5);
    let a = reserved(&mut model, 0, 5);
    waiting(&mut model, 0, 1, S);
    assert!(model.cancel(0, a));
    assert_eq!(left(&model, 0), 4);
}

#[test]
fn settling_returns_the_rest_or_charges_the_excess() {
    for (used, expected) in [(0, 20), (2, 18), (5, 15), (8, 12), (20, 0), (30, 0)] {
        let mut model = bucket(1, S, 20);
        let receipt = reserved(&mut model, 0, 5);
        assert!(model.settle(0, receipt, used));
        assert_eq!(left(&model, 0), expected);
        assert!(!model.settle(0, receipt, used), "used up");
    }
}

#[test]
fn settling_late_returns_what_has_not_leaked() {
    let mut model = bucket(1, S, 20);
    let receipt = reserved(&mut model, 0, 5);
    model.check(0, 10);
    // At 4 s one of the five has not leaked: 5 + 4 + 1.
    assert!(model.settle(4 * S, receipt, 2));
    assert_eq!(left(&model, 4 * S), 10);
}

#[test]
fn settled_debt_delays_later_calls() {
    let mut model = bucket(1, S, 5);
    let receipt = reserved(&mut model, 0, 5);
    assert!(model.settle(0, receipt, 9));
    assert_eq!(model.check(0, 1), no(5, 0, 5 * S, 9 * S));
}

#[test]
fn debt_stops_at_a_century() {
    let mut model = bucket(1, TEN_YEARS, 1);
    let receipt = reserved(&mut model, CENTURY, 1);
    assert!(model.settle(CENTURY, receipt, 1_000_000_000));
    // Ten tokens in debt, and the eleventh is the first usable one.
    let wait = CENTURY + TEN_YEARS;
    assert_eq!(model.check(CENTURY, 1), no(1, 0, wait, wait));
    // A step back deepens the debt; a settle leaves it as it is.
    let deeper = no(1, 0, wait + DAY, wait + DAY);
    assert_eq!(model.check(CENTURY - DAY, 1), deeper);
    let receipt = reserved(&mut model, CENTURY - DAY, 0);
    assert!(model.settle(CENTURY - DAY, receipt, 5));
    assert_eq!(model.check(CENTURY - DAY, 1), deeper);
}

#[test]
fn a_reservation_of_cost_zero_returns_nothing() {
    let mut model = bucket(1, S, 5);
    let receipt = reserved(&mut model, 0, 0);
    assert!(!model.cancel(0, receipt));
    let receipt = reserved(&mut model, 0, 0);
    assert!(model.settle(0, receipt, 2));
    assert_eq!(left(&model, 0), 3);
    let receipt = reserved(&mut model, 0, 0);
    assert!(model.settle(0, receipt, 0));
    assert!(!model.settle(0, receipt, 0));
    assert_eq!(left(&model, 0), 3);
}

#[test]
fn a_reset_voids_receipts() {
    let mut model = bucket(1, S, 5);
    let receipt = reserved(&mut model, 0, 5);
    model.reset();
    let other = reserved(&mut model, 0, 3);
    assert_ne!(receipt, other);
    assert!(!model.cancel(0, receipt));
    assert!(!model.settle(0, receipt, 0));
    assert_eq!(left(&model, 0), 2);
}

#[test]
fn a_cancel_after_a_step_back_returns_at_most_the_cost() {
    let mut model = bucket(1, S, 20);
    let receipt = reserved(&mut model, 10 * S, 5);
    assert_eq!(left(&model, 8 * S), 13);
    assert!(model.cancel(8 * S, receipt));
    assert_eq!(left(&model, 8 * S), 18);
    assert_eq!(left(&model, 10 * S), 20);
}
