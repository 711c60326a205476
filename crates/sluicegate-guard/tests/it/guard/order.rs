//! Which part comes before which.

use super::polling::{Events, Polled, sleep};
use sluicegate_guard::breaker::{Breaker, State};
use sluicegate_guard::guard::{Failure, Guard, GuardDenial};
use sluicegate_guard::{Bulkhead, Denial, ManualClock, Outcome};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// From outside: fallback, retry, breaker, bulkhead, timeout, the call.
#[test]
fn the_order_is_that_of_hystrix_with_retries_around_it() {
    let (clock, events) = (ManualClock::default(), Arc::new(Events::default()));
    let guard = Guard::builder("payments")
        .timeout(100 * MS)
        .bulkhead("bulkhead 1")
        .breaker("breaker 100%/3calls min=3 open=5s")
        .retry("retry 5 budget=1000% backoff=0s")
        .clock(clock.clone())
        .observer(Arc::clone(&events))
        .build()
        .unwrap();
    let calls = Cell::new(0);
    let mut call = Polled::new(
        guard
            .call(|| {
                calls.set(calls.get() + 1);
                std::future::pending::<Result<u8, ()>>()
            })
            .fallback(|why| async move {
                assert_eq!(why, Failure::TimedOut);
                7
            }),
    );
    assert_eq!(call.run(&clock, MS), Ok(7));
    // The third opens the breaker, and an open breaker is not asked again.
    assert_eq!(calls.get(), 3);
    let expected_events =
        ["TimedOut", "retry 1", "TimedOut", "retry 2", "breaker Open", "TimedOut", "FellBack"];
    assert_eq!(events.words(), expected_events);
    // Now it is open: no call is made, no permit taken, no retry made.
    events.0.lock().unwrap().clear();
    let _permit = guard.bulkhead().unwrap().try_acquire().unwrap();
    let mut denied_call = Polled::new(guard.call(|| async { Ok::<u8, ()>(1) }));
    let answer = denied_call.run(&clock, MS);
    assert!(matches!(answer, Err(Failure::Denied(GuardDenial::Breaker(_)))), "{answer:?}");
    assert_eq!(events.words(), ["denied Breaker"]);
    let stats = guard.stats();
    assert_eq!((stats.calls, stats.allowed, stats.denied, stats.timed_out), (2, 3, 1, 3));
    assert_eq!((stats.retried, stats.fell_back, stats.failed), (2, 1, 0));
}

#[test]
fn a_bulkhead_denial_is_a_failure_and_not_retried() {
    let (clock, events) = (ManualClock::default(), Arc::new(Events::default()));
    let guard = Guard::builder("g")
        .bulkhead("bulkhead 1 queue=1 wait=1s")
        .breaker("breaker 100%/2calls min=2")
        .retry("retry 5")
        .clock(clock.clone())
        .observer(Arc::clone(&events))
        .build()
        .unwrap();
    let _permit = guard.bulkhead().unwrap().try_acquire().unwrap();
    let mut waits = Polled::new(guard.call(|| async { Ok::<u8, ()>(1) }));
    assert!(waits.poll().is_none());
    let mut full = Polled::new(guard.call(|| async { Ok::<u8, ()>(1) }));
    assert_eq!(full.poll(), Some(Err(Failure::Denied(GuardDenial::Bulkhead(Denial::QueueFull)))));
    let answer = waits.run(&clock, 10 * MS);
    assert_eq!(answer, Err(Failure::Denied(GuardDenial::Bulkhead(Denial::TooLong))));
    assert_eq!(guard.breaker().unwrap().state(), State::Open);
    let words =
        ["bulkhead QueueFull", "denied Bulkhead", "bulkhead TooLong", "breaker Open", "denied Bulkhead"];
    assert_eq!(events.words(), words);
}

/// A dependency that answers in 300 ms is not slow because three calls stand in our own queue.
#[test]
fn the_wait_for_a_permit_does_not_count_as_slow() {
    let clock = ManualClock::default();
    let guard = Guard::builder("g")
        .bulkhead("bulkhead 1 queue=2 wait=10s")
        .breaker("breaker 100%/2calls min=2 slow=500ms slow-rate=50%")
        .clock(clock.clone())
        .build()
        .unwrap();
    let call = || {
        guard.call(|| async {
            sleep(&clock, 300 * MS).await;
            Ok::<u8, ()>(1)
        })
    };
    let mut calls: Vec<_> = (0..3).map(|_| Polled::new(call())).collect();
    assert!(calls.iter_mut().all(|call| call.poll().is_none()));
    for call in &mut calls {
        assert_eq!(call.run(&clock, MS), Ok(1));
    }
    let stats = guard.breaker().unwrap().stats();
    assert_eq!((stats.state, stats.totals.successes, stats.totals.slow), (State::Closed, 3, 0));
    // What takes long itself is slow.
    let mut slow = Polled::new(guard.call(|| async {
        sleep(&clock, SECOND).await;
        Ok::<u8, ()>(1)
    }));
    assert_eq!((slow.run(&clock, MS), guard.breaker().unwrap().stats().totals.slow), (Ok(1), 1));
}

/// Sentinel#1638: a probe admitted by the breaker and stopped by a later part left the breaker
/// half-open forever.
#[test]
fn sentinel_1638_a_probe_denied_by_the_bulkhead_is_resolved() {
    let clock = ManualClock::default();
    let guard = Guard::builder("g")
        .bulkhead("bulkhead 1")
        .breaker("breaker 100%/1calls min=1 open=5s")
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut fails = Polled::new(guard.call(|| async { Err::<u8, ()>(()) }));
    assert_eq!(fails.poll(), Some(Err(Failure::Failed(()))));
    let breaker = guard.breaker().unwrap();
    assert_eq!(breaker.state(), State::Open);
    clock.advance(5 * SECOND);
    let permit = guard.bulkhead().unwrap().try_acquire();
    let mut probe = Polled::new(guard.call(|| async { Ok::<u8, ()>(1) }));
    assert_eq!(probe.poll(), Some(Err(Failure::Denied(GuardDenial::Bulkhead(Denial::QueueFull)))));
    assert_eq!(breaker.state(), State::Open, "it has failed, and another is let through later");
    drop(permit);
    clock.advance(5 * SECOND);
    let mut probe = Polled::new(guard.call(|| async { Ok::<u8, ()>(1) }));
    assert_eq!(probe.poll(), Some(Ok(1)));
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn existing_parts_are_shared() {
    let (breaker, bulkhead) =
        (Breaker::new("breaker 100%/1calls min=1").unwrap(), Bulkhead::new("bulkhead 1").unwrap());
    let guard =
        |name: &str| Guard::builder(name).breaker(&breaker).bulkhead(bulkhead.clone()).build().unwrap();
    let (one, other) = (guard("one"), guard("other"));
    let mut hangs = Polled::new(one.call(std::future::pending::<Result<u8, ()>>));
    assert!(hangs.poll().is_none());
    assert_eq!(bulkhead.stats().in_use, 1);
    assert!(matches!(
        Polled::new(other.clone().call(|| async { Ok::<u8, ()>(1) })).poll(),
        Some(Err(Failure::Denied(_)))
    ));
    assert_eq!(other.breaker().unwrap().state(), State::Open);
    assert_eq!(one.breaker().unwrap().state(), State::Open);
}

/// Hystrix's bad request: neither failure nor retry nor fallback.
#[test]
fn ignored_errors_are_passed_on() {
    let guard = Guard::builder("g").breaker("breaker 1%/1calls min=1").retry("retry 3").build().unwrap();
    let calls = Cell::new(0);
    let call = guard
        .call(|| {
            calls.set(calls.get() + 1);
            async { Err::<u8, _>("bad request") }
        })
        .classify(|_| Outcome::Ignored)
        .fallback(|_| async { 7 });
    assert_eq!(Polled::new(call).poll(), Some(Err(Failure::Ignored("bad request"))));
    assert_eq!((calls.get(), guard.breaker().unwrap().state()), (1, State::Closed));
}

#[test]
fn an_ok_can_be_a_failure() {
    let clock = ManualClock::default();
    let guard = Guard::builder("g")
        .breaker("breaker 100%/2calls min=2")
        .retry("retry 1 backoff=0s")
        .clock(clock.clone())
        .build();
    let guard = guard.unwrap();
    let call = guard.call(|| async { Ok::<u16, ()>(503) });
    let classified = call.classify(|answer| match answer {
        Ok(500..) | Err(()) => Outcome::Failure,
        Ok(_) => Outcome::Success,
    });
    assert_eq!(Polled::new(classified).run(&clock, MS), Ok(503), "the last answer is passed on");
    assert_eq!((guard.stats().retried, guard.breaker().unwrap().state()), (1, State::Open));
}

/// The fallback applies after all attempts; without a permit for it the result is returned as it
/// is.
#[test]
fn an_ok_that_is_a_failure_is_replaced_by_the_fallback() {
    let (clock, events) = (ManualClock::default(), Arc::new(Events::default()));
    let builder = Guard::builder("g").retry("retry 1 backoff=0s").max_fallbacks(1);
    let guard = builder.clock(clock.clone()).observer(Arc::clone(&events)).build().unwrap();
    let held = Arc::new(());
    let classified = || {
        let call = guard.call(|| {
            let held = Arc::clone(&held);
            async { Ok::<_, ()>((503, held)) }
        });
        call.classify(
            |answer| if matches!(answer, Ok((500.., _))) { Outcome::Failure } else { Outcome::Success },
        )
    };
    let mut falls = Polled::new(classified().fallback(|why| async {
        assert_eq!((why, Arc::strong_count(&held)), (Failure::BadResult, 1), "the answer is gone");
        (200, Arc::default())
    }));
    assert_eq!(falls.run(&clock, MS).map(|(status, _)| status), Ok(200));
    assert_eq!(events.words(), ["Failed", "retry 1", "Failed", "FellBack"]);
    let mut hangs = Polled::new(classified().fallback(|_| std::future::pending()));
    assert!(hangs.poll().is_none());
    let mut denied = Polled::new(classified().fallback(|_| async { (200, Arc::default()) }));
    assert_eq!(denied.run(&clock, MS).map(|(status, _)| status), Ok(503));
    assert_eq!((guard.stats().fell_back, guard.stats().fallbacks_denied), (2, 1));
    // What is well is not replaced.
    let well = guard.call(|| async { Ok::<u16, ()>(200) }).classify(|_| Outcome::Success);
    assert_eq!(Polled::new(well.fallback(|_| async { 0 })).poll(), Some(Ok(200)));
}

/// A denied retry: the result of the previous attempt still counts as a failure.
#[test]
fn an_ok_that_is_a_failure_is_replaced_without_a_retry() {
    let clock = ManualClock::default();
    let builder = Guard::builder("g").retry("retry 2 backoff=1s").bulkhead("bulkhead 1").seed(1);
    let guard = builder.clock(clock.clone()).build().unwrap();
    let call = guard.call(|| async { Ok::<u16, ()>(503) }).classify(|_| Outcome::Failure);
    let mut call = Polled::new(call.fallback(|why| async move {
        assert_eq!(why, Failure::BadResult);
        200
    }));
    assert!(call.poll().is_none(), "it rests");
    let _permit = guard.bulkhead().unwrap().try_acquire().unwrap();
    assert_eq!(call.run(&clock, MS), Ok(200));
}

#[test]
fn fallbacks_have_a_bound() {
    let (clock, events) = (ManualClock::default(), Arc::new(Events::default()));
    let builder = Guard::builder("g").max_fallbacks(2).observer(Arc::clone(&events));
    let guard = builder.build().unwrap();
    let slow = || {
        let clock = clock.clone();
        guard.call(|| async { Err::<u8, _>("down") }).fallback(move |_| async move {
            sleep(&clock, SECOND).await;
            7
        })
    };
    let mut calls: Vec<Polled<'_, _>> = (0..3).map(|_| Polled::new(slow())).collect();
    let answers: Vec<_> = calls.iter_mut().map(Polled::poll).collect();
    assert_eq!(answers, [None, None, Some(Err(Failure::Failed("down")))]);
    assert_eq!(events.words(), ["Failed", "FellBack", "Failed", "FellBack", "Failed", "FallbackDenied"]);
    clock.advance(SECOND);
    assert_eq!(calls[0].poll(), Some(Ok(7)));
    drop(calls);
    assert!(Polled::new(slow()).poll().is_none(), "permits come back");
    assert!(Guard::builder("g").max_fallbacks(0).build().is_err());
    let ten = Guard::builder("g").build().unwrap();
    let hang = || ten.call(|| async { Err::<u8, ()>(()) }).fallback(|_| std::future::pending());
    let mut hanging: Vec<_> = (0..11).map(|_| Polled::new(hang())).collect();
    assert_eq!(hanging.iter_mut().filter_map(Polled::poll).count(), 1, "Hystrix's ten by default");
}
