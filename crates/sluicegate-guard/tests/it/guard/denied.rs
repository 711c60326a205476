//! Denied retries, and attempts that the deadline denies.

use super::polling::{Events, Polled};
use sluicegate_guard::guard::{Failure, Guard, GuardDenial};
use sluicegate_guard::{ManualClock, Outcome};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// The card may have been charged: a caller that believes that the call was not made charges it
/// twice.
#[test]
fn a_call_that_was_made_is_never_reported_as_denied() {
    let (clock, events) = (ManualClock::default(), Arc::new(Events::default()));
    let guard = Guard::builder("payments")
        .timeout(100 * MS)
        .retry("retry 2 backoff=1s")
        .breaker("breaker 100%/2calls min=2 open=1min")
        .clock(clock.clone())
        .observer(Arc::clone(&events))
        .seed(1)
        .build()
        .unwrap();
    let mut charges = Polled::new(guard.call(std::future::pending::<Result<u8, ()>>));
    assert!(charges.poll().is_none());
    clock.advance(100 * MS);
    assert!(charges.poll().is_none(), "it rests");
    // Others fail meanwhile, and the breaker opens.
    assert!(guard.call(|| async { Err::<u8, ()>(()) }).may_retry(false).blocking().is_err());
    let answer = charges.run(&clock, MS);
    assert_eq!((&answer, answer.as_ref().unwrap_err().is_denied()), (&Err(Failure::TimedOut), false));
    assert_eq!(events.words(), ["TimedOut", "retry 1", "breaker Open", "Failed", "denied Breaker"]);
    assert_eq!((guard.stats().allowed, guard.stats().denied), (2, 1));
}

#[test]
fn the_last_error_is_not_lost_when_the_bulkhead_is_full() {
    let clock = ManualClock::default();
    let builder = Guard::builder("g").retry("retry 2 backoff=1s").bulkhead("bulkhead 1").seed(1);
    let guard = builder.clock(clock.clone()).build().unwrap();
    let mut fails = Polled::new(guard.call(|| async { Err::<u8, _>("down") }));
    assert!(fails.poll().is_none(), "it rests");
    let permit = guard.bulkhead().unwrap().try_acquire().unwrap();
    assert_eq!(fails.run(&clock, MS), Err(Failure::Failed("down")));
    // An answer that is a failure is passed on too.
    drop(permit);
    let answers = guard.call(|| async { Ok::<u16, ()>(503) }).classify(|_| Outcome::Failure);
    let mut answers = Polled::new(answers);
    assert!(answers.poll().is_none(), "it rests");
    let _permit = guard.bulkhead().unwrap().try_acquire().unwrap();
    assert_eq!(answers.run(&clock, MS), Ok(503));
}

/// What an answer holds may be what the next try needs: a connection.
#[test]
fn the_last_result_is_dropped_before_a_retry() {
    let clock = ManualClock::default();
    let guard = Guard::builder("g").retry("retry 1").clock(clock.clone()).build().unwrap();
    let connection = Arc::new(());
    let mut call = Polled::new(guard.call(|| {
        assert_eq!(Arc::strong_count(&connection), 1, "it is in use");
        let connection = Arc::clone(&connection);
        async move { Err::<u8, _>(connection) }
    }));
    assert!(matches!(call.run(&clock, MS), Err(Failure::Failed(_))));
    assert_eq!(guard.stats().retried, 1);
}

#[test]
fn a_permit_after_the_deadline_is_a_denial() {
    let clock = ManualClock::default();
    let builder = Guard::builder("g").deadline(SECOND).bulkhead("bulkhead 1 queue=1 wait=10s");
    let guard = builder.clock(clock.clone()).build().unwrap();
    let permit = guard.bulkhead().unwrap().try_acquire().unwrap();
    let is_made = Cell::new(false);
    let mut call = Polled::new(guard.call(|| {
        is_made.set(true);
        async { Ok::<u8, ()>(7) }
    }));
    assert!(call.poll().is_none());
    clock.advance(SECOND / 2);
    drop(permit);
    // It has been called in time, but its task is not run before.
    clock.advance(SECOND / 2);
    assert_eq!(call.poll(), Some(Err(Failure::Denied(GuardDenial::Deadline))));
    assert!(!is_made.get());
    assert_eq!((guard.bulkhead().unwrap().stats().in_use, guard.stats().denied), (0, 1));
}

#[test]
fn a_wait_cut_short_by_the_deadline_says_so() {
    let clock = ManualClock::default();
    let guard = |deadline| {
        let builder = Guard::builder("g").deadline(deadline).bulkhead("bulkhead 1 queue=1 wait=10s");
        builder.clock(clock.clone()).build().unwrap()
    };
    let denial = |guard: &Guard| {
        let _permit = guard.bulkhead().unwrap().try_acquire().unwrap();
        Polled::new(guard.call(|| async { Ok::<u8, String>(7) })).run(&clock, MS).unwrap_err().to_string()
    };
    assert_eq!(
        denial(&guard(SECOND)),
        "the deadline passed before a permit was free; retry later, or raise the deadline"
    );
    assert!(denial(&guard(11 * SECOND)).ends_with("raise wait="));
}
