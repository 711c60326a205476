//! Receipts of fixed windows, sliding windows and logs.

use crate::{S, fixed, left, log, no, reserved, sliding, yes};
use sluicegate_model::Windows;

const EPOCH: Windows = Windows::Epoch { period: 60 * S };
const FIRST: Windows = Windows::First { period: 60 * S };

#[test]
fn a_reservation_decides_as_a_check() {
    let mut model = fixed(5, EPOCH);
    reserved(&mut model, 10 * S, 3);
    assert_eq!(model.reserve(10 * S, 3, 100 * S), (no(5, 2, 50 * S, 50 * S), None));
}

#[test]
fn a_fixed_window_returns_cost_until_it_ends() {
    for (now, returned) in [(10 * S, true), (60 * S - 1, true), (60 * S, false)] {
        let mut model = fixed(5, EPOCH);
        let receipt = reserved(&mut model, 10 * S, 3);
        assert_eq!(model.cancel(now, receipt), returned);
        assert!(!model.cancel(now, receipt));
        assert_eq!(left(&model, 10 * S), if returned { 5 } else { 2 });
    }
}

#[test]
fn a_refund_is_not_returned_again_by_a_cancel() {
    for mut model in [fixed(5, EPOCH), fixed(5, FIRST), sliding(5, 60 * S), log(5, 60 * S)] {
        let receipt = reserved(&mut model, 10 * S, 3);
        model.refund(10 * S, 2);
        model.check(10 * S, 2);
        assert!(model.cancel(10 * S, receipt));
        assert_eq!(left(&model, 10 * S), 3, "{model:?}");
    }
}

#[test]
fn a_refund_of_two_is_not_cancelled_twice() {
    for a_first in [true, false] {
        for mut model in [fixed(5, EPOCH), fixed(5, FIRST), sliding(5, 60 * S), log(5, 60 * S)] {
            let a = reserved(&mut model, 10 * S, 2);
            let b = reserved(&mut model, 10 * S, 2);
            model.refund(10 * S, 3);
            model.check(10 * S, 3);
            let (first, second) = if a_first { (a, b) } else { (b, a) };
            assert!(model.cancel(10 * S, first));
            assert!(!model.cancel(10 * S, second));
            assert_eq!(left(&model, 10 * S), 2, "{model:?}");
        }
    }
}

#[test]
fn a_cancel_in_the_middle_keeps_the_other_charges() {
    for mut model in [fixed(9, EPOCH), fixed(9, FIRST), sliding(9, 60 * S), log(9, 60 * S)] {
        let [a, b, c] = [2, 3, 4].map(|cost| reserved(&mut model, 10 * S, cost));
        for (receipt, expected) in [(b, 3), (c, 7), (a, 9)] {
            assert!(model.cancel(10 * S, receipt));
            assert_eq!(left(&model, 10 * S), expected, "{model:?}");
        }
    }
}

#[test]
fn a_cancel_after_a_refund_returns_the_rest() {
    for mut model in [fixed(9, EPOCH), fixed(9, FIRST), sliding(9, 60 * S), log(9, 60 * S)] {
        let a = reserved(&mut model, 10 * S, 5);
        let b = reserved(&mut model, 10 * S, 3);
        model.refund(10 * S, 2);
        // 6 are used. Without B the refund would have left 3 of A, and so does the cancel.
        assert!(model.cancel(10 * S, b));
        assert_eq!(left(&model, 10 * S), 6);
        model.check(10 * S, 2);
        assert!(model.cancel(10 * S, a));
        assert_eq!(left(&model, 10 * S), 7);
    }
}

#[test]
fn a_return_in_one_window_keeps_the_receipts_of_the_other() {
    let mut model = sliding(10, 60 * S);
    let a = reserved(&mut model, 30 * S, 4);
    let b = reserved(&mut model, 30 * S, 4);
    let c = reserved(&mut model, 90 * S, 4);
    assert!(model.cancel(90 * S, a));
    // 4 / 2 of the last window and 4 of this one.
    assert_eq!(left(&model, 90 * S), 4);
    model.refund(90 * S, 1);
    assert!(model.cancel(90 * S, b));
    assert_eq!(left(&model, 90 * S), 7);
    assert!(model.cancel(90 * S, c));
    assert_eq!(model.peek(90 * S, 0), yes(10, 10, 0));
}

#[test]
fn a_fixed_window_may_be_in_debt() {
    let mut model = fixed(5, EPOCH);
    let receipt = reserved(&mut model, 10 * S, 3);
    assert!(model.settle(10 * S, receipt, 9));
    assert_eq!(model.check(10 * S, 1), no(5, 0, 50 * S, 50 * S));
    assert_eq!(model.refund(10 * S, 4), Some(yes(5, 0, 50 * S)));
    assert_eq!(model.refund(10 * S, 1), Some(yes(5, 1, 50 * S)));
}

#[test]
fn an_excess_is_charged_when_it_is_settled() {
    let mut model = fixed(5, EPOCH);
    let receipt = reserved(&mut model, 10 * S, 3);
    assert!(model.settle(70 * S, receipt, 4));
    assert_eq!(model.peek(70 * S, 0), yes(5, 4, 50 * S));
    // It counts as a call, so no later call is earlier than it.
    assert_eq!(left(&model, 10 * S), 4);

    let mut model = log(5, 60 * S);
    let receipt = reserved(&mut model, 0, 2);
    assert!(model.settle(10 * S, receipt, 4));
    assert_eq!(model.peek(10 * S, 2), no(5, 1, 50 * S, 60 * S));
}

#[test]
fn a_window_opened_by_a_debt() {
    let mut model = fixed(5, FIRST);
    let receipt = reserved(&mut model, 10 * S, 0);
    assert!(model.settle(50 * S, receipt, 3));
    assert_eq!(model.peek(70 * S, 0), yes(5, 2, 40 * S));
}

#[test]
fn a_window_cancelled_to_zero_is_closed() {
    let mut model = fixed(5, FIRST);
    let receipt = reserved(&mut model, 20 * S, 3);
    assert!(model.cancel(30 * S, receipt));
    assert_eq!(model.next_window(30 * S), 30 * S);
    assert_eq!(model.check(10 * S, 1), yes(5, 4, 60 * S));
}

#[test]
fn a_receipt_of_a_closed_window_is_void() {
    let mut model = fixed(5, FIRST);
    let receipt = reserved(&mut model, 20 * S, 3);
    model.refund(20 * S, 3);
    model.check(20 * S, 4);
    assert!(!model.cancel(20 * S, receipt));
    assert_eq!(left(&model, 20 * S), 1);
}

#[test]
fn a_receipt_is_void_in_a_window_reopened_at_the_same_time() {
    let mut model = fixed(5, FIRST);
    let receipt = reserved(&mut model, 5 * S, 3);
    model.check(100 * S, 1);
    model.refund(100 * S, 1);
    // No window is open now, and the clock steps back to where the first one was.
    model.check(5 * S, 4);
    assert!(!model.cancel(5 * S, receipt));
    assert_eq!(left(&model, 5 * S), 1);
}

#[test]
fn a_sliding_window_returns_from_the_previous_window_too() {
    for (now, returned) in [(30 * S, true), (75 * S, true), (120 * S - 1, true), (120 * S, false)] {
        let mut model = sliding(10, 60 * S);
        let receipt = reserved(&mut model, 30 * S, 8);
        assert_eq!(model.cancel(now, receipt), returned);
        assert_eq!(model.peek(now, 0), yes(10, 10, 0));
    }
}

#[test]
fn a_sliding_window_settles_in_the_window_of_the_receipt() {
    let mut model = sliding(10, 60 * S);
    let receipt = reserved(&mut model, 30 * S, 8);
    model.check(90 * S, 2);
    // 4 of 8 are left at 90 s, and 2 of 4 after settling; a later window's 2 stay.
    assert_eq!(left(&model, 90 * S), 4);
    assert!(model.settle(90 * S, receipt, 4));
    assert_eq!(left(&model, 90 * S), 6);
}

#[test]
fn a_log_returns_its_own_entry() {
    let mut model = log(5, 60 * S);
    let a = reserved(&mut model, 0, 2);
    let b = reserved(&mut model, 10 * S, 3);
    assert!(model.cancel(20 * S, a));
    assert_eq!(model.peek(20 * S, 0), yes(5, 2, 50 * S));
    assert!(!model.cancel(70 * S, b));
}

#[test]
fn a_refunded_log_entry_returns_the_rest() {
    let mut model = log(5, 60 * S);
    let a = reserved(&mut model, 0, 2);
    let b = reserved(&mut model, 10 * S, 3);
    model.refund(10 * S, 4);
    assert!(!model.cancel(10 * S, b));
    assert!(model.cancel(10 * S, a));
    assert_eq!(model.peek(10 * S, 0), yes(5, 5, 0));
}

#[test]
fn receipts_at_one_time_share_their_entry() {
    let mut model = log(5, 60 * S);
    let a = reserved(&mut model, 0, 2);
    let b = reserved(&mut model, 0, 2);
    model.refund(0, 3);
    // One is left of the four, and the first of the two receipts takes it.
    assert!(model.cancel(0, a));
    assert!(!model.cancel(0, b));
    assert_eq!(left(&model, 0), 5);
}

#[test]
fn a_cancel_after_a_step_back_counts_as_at_the_latest_time() {
    let mut model = log(5, 60 * S);
    let a = reserved(&mut model, 0, 2);
    model.check(60 * S, 1);
    assert!(!model.cancel(10 * S, a));
    assert_eq!(left(&model, 10 * S), 4);
}
