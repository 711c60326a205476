//! The sliding window and its estimate.

use crate::{S, left, never, no, sliding, yes};

#[test]
fn the_previous_window_fades() {
    let mut model = sliding(10, 60 * S);
    // All of 8 until 60 s, then fading until 120 s.
    assert_eq!(model.check(30 * S, 8), yes(10, 2, 90 * S));
    // A quarter into the next window: 8 * 45 / 60 = 6.
    assert_eq!(model.peek(75 * S, 4), yes(10, 4, 45 * S));
    // Down to 5 when 37.5 s of the last window are left.
    assert_eq!(model.check(75 * S, 5), no(10, 4, 7_500_000, 45 * S));
    assert_eq!(model.check(75 * S, 4), yes(10, 0, 105 * S));
    assert_eq!(model.check(75 * S, 11), never(10, 0, 105 * S));
    // 8 * 15 / 60 + 4 = 6 at 105 s.
    assert_eq!(model.check(75 * S, 4), no(10, 0, 30 * S, 105 * S));
    // Across the boundary: 4 * 15 / 60 = 1 at 165 s.
    assert_eq!(model.check(75 * S, 9), no(10, 0, 90 * S, 105 * S));
    assert_eq!(model.next_window(75 * S), 120 * S);
    assert_eq!(model.peek(180 * S, 10), yes(10, 10, 0));
    assert_eq!(model.next_window(180 * S), 240 * S);
}

#[test]
fn a_fraction_of_a_unit_still_counts() {
    let mut model = sliding(10, 7);
    assert_eq!(model.check(0, 10), yes(10, 0, 14));
    // 10 * 6 / 7 = 8.57 at 8, so one; 10 * 5 / 7 = 7.14 at 9, so two.
    assert_eq!(model.check(7, 1), no(10, 0, 1, 7));
    assert_eq!(left(&model, 8), 1);
    assert_eq!(left(&model, 9), 2);
    // 10 / 7 = 1.43 at 13, so eight; all at 14.
    assert_eq!(model.peek(13, 9), no(10, 8, 1, 1));
    assert_eq!(left(&model, 14), 10);
}

#[test]
fn a_refund_goes_to_the_current_window_only() {
    let mut model = sliding(10, 60 * S);
    model.check(30 * S, 8);
    model.check(90 * S, 3);
    // 8 / 2 + 3 = 7; the refund leaves the 4 of the last window.
    assert_eq!(left(&model, 90 * S), 3);
    assert_eq!(model.refund(90 * S, 9), Some(yes(10, 6, 30 * S)));
}

#[test]
fn a_step_back_stays_at_the_latest_time() {
    let mut model = sliding(10, 60 * S);
    model.check(30 * S, 8);
    assert_eq!(model.check(90 * S, 2), yes(10, 4, 90 * S));
    // As at 90 s, so 4 + 2 are used; 8 fit when 2 * (60 - e) / 60 = 2, at 120 s.
    assert_eq!(model.check(60 * S, 8), no(10, 4, 60 * S, 120 * S));
    assert_eq!(model.check(10 * S, 4), yes(10, 0, 170 * S));
    assert_eq!(model.next_window(10 * S), 120 * S);
}

#[test]
fn of_twenty_calls_at_once_five_are_allowed() {
    let mut model = sliding(5, 60 * S);
    let allowed = (0..20).filter(|_| model.check(7, 1).allowed).count();
    assert_eq!(allowed, 5);
}

#[test]
fn take_charges_what_remains() {
    let mut model = sliding(10, 60 * S);
    model.check(30 * S, 8);
    assert_eq!(model.take(75 * S, 9), (yes(10, 0, 105 * S), 4));
    // The 4 of this window stay; an estimate of 9 is there when 8 * (60 - e) / 60 = 5.
    assert_eq!(model.take(75 * S, 9), (no(10, 0, 7_500_000, 105 * S), 0));
}
