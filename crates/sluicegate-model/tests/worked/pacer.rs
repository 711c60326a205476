//! The pacer: a bucket whose calls wait for their slots.

use crate::{MS, S, bucket, later, left, never, no, pacer, waiting, yes};

#[test]
fn calls_leave_one_slot_apart() {
    let mut model = pacer(10, S, 20);
    for place in 0..=20 {
        let answer = model.check(0, 1);
        assert_eq!(answer, later(21, 20 - place, (place + 1) * 100 * MS, place * 100 * MS));
    }
    assert_eq!(model.check(0, 1), no(21, 0, 100 * MS, 2_100 * MS));
    assert_eq!(model.check(100 * MS, 1), later(21, 0, 2_100 * MS, 2_000 * MS));
}

#[test]
fn each_unit_of_cost_takes_a_slot() {
    let mut model = pacer(10, S, 20);
    assert_eq!(model.check(0, 3), later(21, 18, 300 * MS, 0));
    assert_eq!(model.peek(0, 2), later(21, 18, 300 * MS, 300 * MS));
    assert_eq!(model.check(0, 2), later(21, 16, 500 * MS, 300 * MS));
    assert_eq!(model.check(0, 0), yes(21, 16, 500 * MS));
    assert_eq!(model.check(0, 22), never(21, 16, 500 * MS));
    assert_eq!(model.take(0, 100), (later(21, 0, 2_100 * MS, 500 * MS), 16));
}

#[test]
fn a_slot_between_microseconds_is_rounded_up() {
    let mut model = pacer(7, S, 2);
    assert_eq!(model.check(0, 1), later(3, 2, 142_858, 0));
    assert_eq!(model.check(0, 1), later(3, 1, 285_715, 142_858));
    assert_eq!(model.check(0, 1), later(3, 0, 428_572, 285_715));
    assert_eq!(model.next_window(0), 428_572);
}

#[test]
fn without_a_queue_no_call_waits() {
    let mut model = pacer(10, S, 0);
    assert_eq!(model.check(0, 1), yes(1, 0, 100 * MS));
    assert_eq!(model.check(0, 1), no(1, 0, 100 * MS, 100 * MS));
}

#[test]
fn a_reservation_waits_at_most_max_wait() {
    let mut model = pacer(10, S, 20);
    model.check(0, 5);
    assert_eq!(model.reserve(0, 1, 300 * MS), (no(21, 16, 200 * MS, 500 * MS), None));
    assert_eq!(model.reserve(0, 1, 500 * MS - 1).0, no(21, 16, 1, 500 * MS));
    // A cost of all slots needs an empty queue, whatever its maximum wait.
    assert_eq!(model.reserve(0, 21, 10 * S).0, no(21, 16, 500 * MS, 500 * MS));
    assert_eq!(model.reserve(0, 22, 10 * S).0, never(21, 16, 500 * MS));
    let (answer, receipt) = model.reserve(0, 1, 500 * MS);
    assert_eq!(answer, later(21, 15, 600 * MS, 500 * MS));
    assert!(receipt.is_some());
    assert_eq!(model.reserve(0, 0, 0).0, yes(21, 15, 600 * MS));
}

#[test]
fn nothing_is_refunded() {
    let mut model = pacer(10, S, 20);
    model.check(0, 5);
    assert_eq!(model.refund(0, 5), None);
    assert_eq!(left(&model, 0), 16);
}

#[test]
fn only_the_last_slot_can_be_cancelled() {
    let mut model = pacer(10, S, 20);
    let first = waiting(&mut model, 0, 1, 0);
    let second = waiting(&mut model, 0, 1, 100 * MS);
    let third = waiting(&mut model, 0, 1, 200 * MS);
    assert!(!model.cancel(0, first));
    assert_eq!(left(&model, 0), 18);
    assert!(model.cancel(0, third));
    // The second slot is the last one now.
    assert!(model.cancel(0, second));
    assert_eq!(left(&model, 0), 20);
    assert!(!model.cancel(0, first));
}

#[test]
fn a_call_that_has_left_cannot_be_cancelled() {
    let mut model = pacer(10, S, 20);
    let receipt = waiting(&mut model, 0, 2, 0);
    // Half of the two slots have passed after 100 ms.
    assert!(model.cancel(100 * MS, receipt));
    assert_eq!(model.peek(100 * MS, 0), yes(21, 21, 0));
    let receipt = waiting(&mut model, S, 2, 0);
    assert!(!model.cancel(S + 200 * MS, receipt));
}

#[test]
fn a_slot_can_be_settled() {
    let mut model = pacer(10, S, 20);
    let receipt = waiting(&mut model, 0, 5, 0);
    assert!(model.settle(0, receipt, 2));
    assert_eq!(left(&model, 0), 19);
    let receipt = waiting(&mut model, 0, 1, 200 * MS);
    assert!(model.settle(0, receipt, 4));
    assert_eq!(left(&model, 0), 15);
}

#[test]
fn it_decides_like_a_bucket_one_larger_than_the_queue() {
    let (mut paced, mut plain) = (pacer(3, 7, 9), bucket(3, 7, 10));
    for step in 0..200_u64 {
        let (now, cost) = (step * step % 90 + step, step * 7 % 12);
        let (with_delay, without) = (paced.check(now, cost), plain.check(now, cost));
        assert_eq!(sluicegate_model::Decision { delay: 0, ..with_delay }, without);
    }
}

#[test]
fn the_next_window_is_the_next_free_slot() {
    let mut model = pacer(10, S, 20);
    assert_eq!(model.next_window(5), 5);
    model.check(0, 3);
    assert_eq!(model.next_window(0), 300 * MS);
    assert_eq!(model.next_window(S), S);
}
