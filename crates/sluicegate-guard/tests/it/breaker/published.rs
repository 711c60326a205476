//! Bugs of other breakers, as they were published, each as a test that ours does not have it.

use super::{SECOND, admitted, breaker, denied_for, open};
use sluicegate_guard::breaker::{Breaker, Outcome, State};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Hystrix: 10 s, 20 calls, 50 %: 19 failures do not trip it, 20 calls of which 10 failed do.
#[test]
fn hystrix_defaults_open_at_20_calls_and_50_percent() {
    let (payments, _) = breaker("breaker 50%/10s");
    (0..19).for_each(|_| admitted(&payments).failure());
    assert_eq!(payments.state(), State::Closed);

    let (payments, _) = breaker("breaker 50%/10s");
    (0..10).for_each(|_| admitted(&payments).failure());
    (0..9).for_each(|_| admitted(&payments).success());
    assert_eq!(payments.state(), State::Closed);
    // The last one goes well, and still brings the number of calls to 20.
    admitted(&payments).success();
    assert_eq!(payments.state(), State::Open);

    let (payments, _) = breaker("breaker 50%/10s");
    (0..11).for_each(|_| admitted(&payments).success());
    (0..9).for_each(|_| admitted(&payments).failure());
    assert_eq!(payments.state(), State::Closed, "45 %");
}

/// Hystrix#1861: a command that began before the circuit opened was unsubscribed while the probe
/// was out. That flipped `HALF_OPEN` to `OPEN`, so the probe's success could not close it, and it
/// stayed open for ever.
#[test]
fn hystrix_1861_an_earlier_call_does_not_disturb_the_probe() {
    for outcome in [Outcome::Dropped, Outcome::Failure, Outcome::Success, Outcome::Ignored] {
        let (payments, clock) = breaker("breaker 50%/4calls");
        let [early, later] = [admitted(&payments), admitted(&payments)];
        open(&payments);
        clock.advance(5 * SECOND);
        let probe = admitted(&payments);
        assert_eq!(payments.state(), State::HalfOpen);
        early.finish(outcome);
        assert_eq!(payments.state(), State::HalfOpen, "after {outcome:?}");
        assert!(!payments.try_acquire().allowed(), "no probe slot is free");
        probe.success();
        assert_eq!(payments.state(), State::Closed);
        // Nor does it count in the fresh window.
        later.failure();
        assert_eq!((payments.stats().window.total, payments.stats().totals.late), (0, 2));
    }
}

/// Hystrix#1781: the state and the time of opening were two atomics. Under load a trip could come
/// between a success and the reset of the time, which left it open with no time of opening: no
/// probe ever again.
#[test]
fn hystrix_1781_open_ends_under_load() {
    let (payments, clock) = breaker("breaker 50%/4calls open=1s");
    for round in 0..50 {
        let (fails, barrier) = (AtomicBool::new(true), Barrier::new(4));
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (payments, clock, fails, barrier) = (&payments, &clock, &fails, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for call in 0..100 {
                        let fail = fails.fetch_xor(call % 3 == 0, Ordering::Relaxed);
                        let _ = payments.call(|| if fail { Err(()) } else { Ok(()) });
                        if number == 0 {
                            clock.advance(SECOND / 3);
                        }
                    }
                });
            }
        });
        // All is well from now on. The first good call may be the one that fills a window of which
        // half failed; then it opens once more, and closes with the next one `open` later.
        for _ in 0..2 {
            clock.advance(SECOND);
            let _ = payments.call(|| Ok::<_, ()>(()));
        }
        assert_eq!(payments.state(), State::Closed, "round {round}");
    }
}

/// Hystrix#1633: calls hung, the circuit opened, the service recovered, and no request was let
/// through any more: the one probe had never come back.
#[test]
fn hystrix_1633_a_probe_that_hangs_expires() {
    let (payments, clock) = breaker("breaker 50%/4calls open=5s probe-ttl=2s");
    open(&payments);
    clock.advance(5 * SECOND);
    let hung = admitted(&payments);
    // The probe may take 2 s; then it has failed, and `open` starts again.
    assert_eq!(denied_for(&payments), 7 * SECOND);
    clock.advance(Duration::from_micros(6_999_999));
    assert!(!payments.try_acquire().allowed());
    clock.advance(Duration::from_micros(1));
    let probe = admitted(&payments);
    assert_eq!(payments.stats().totals.expired, 1);
    // It comes back after all: too late to matter.
    hung.failure();
    assert_eq!(payments.state(), State::HalfOpen);
    probe.success();
    assert_eq!(payments.state(), State::Closed);
}

/// Hystrix#1723: of a command without a fallback a probe that failed was never marked as such, and
/// the circuit stayed half-open for ever.
#[test]
fn hystrix_1723_an_unreported_probe_counts_as_failed() {
    let (payments, clock) = breaker("breaker 50%/4calls");
    let pay = |payments: &Breaker| -> Result<(), std::num::ParseIntError> {
        let admitted = admitted(payments);
        let _amount: u32 = "none".parse()?; // this path forgets the admitted call
        admitted.success();
        Ok(())
    };
    open(&payments);
    clock.advance(5 * SECOND);
    assert!(pay(&payments).is_err());
    assert_eq!(payments.state(), State::Open);
    assert_eq!(denied_for(&payments), 5 * SECOND, "a fresh sleep");
    clock.advance(5 * SECOND);
    admitted(&payments).success();
    assert_eq!(payments.state(), State::Closed);
}

/// resilience4j#935: some of the permitted calls never reported how they ended. With all permits
/// gone and too few outcomes it stayed half-open for ever, as waiting there has no limit by
/// default.
#[test]
fn resilience4j_935_unreturned_permits_do_not_block_half_open() {
    let (payments, clock) = breaker("breaker 50%/4calls probes=3 probe-ttl=2s");
    open(&payments);
    clock.advance(5 * SECOND);
    admitted(&payments).success();
    std::mem::forget(admitted(&payments));
    std::mem::forget(admitted(&payments));
    assert!(!payments.try_acquire().allowed());
    clock.advance(2 * SECOND);
    // Looking is enough to find out.
    assert_eq!(payments.state(), State::Open);
    clock.advance(5 * SECOND);
    (0..2).for_each(|_| admitted(&payments).success());
    assert_eq!(payments.state(), State::Closed);
}

/// resilience4j#903: with a window of time the outcomes of the permitted calls aged out of it, so
/// that there were never enough of them to decide.
#[test]
fn resilience4j_903_slow_probes_do_not_age_out() {
    let (payments, clock) = breaker("breaker 25%/1s min=10 open=1s probes=10 probe-ttl=1min");
    (0..10).for_each(|_| admitted(&payments).failure());
    clock.advance(SECOND);
    for _ in 0..7 {
        admitted(&payments).success();
        clock.advance(3 * SECOND);
        assert_eq!(payments.state(), State::HalfOpen);
    }
    // With 8 of 10 well, at most 20 % can fail: it is decided.
    admitted(&payments).success();
    assert_eq!(payments.state(), State::Closed);
}

/// resilience4j#1389: an `Error` that no handler expects went past the breaker, so a permitted call
/// ended unreported, and it stuck half-open.
#[test]
fn resilience4j_1389_a_probe_that_panics_has_failed() {
    let (payments, clock) = breaker("breaker 50%/4calls");
    open(&payments);
    clock.advance(5 * SECOND);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        payments.call(|| -> Result<(), ()> { std::panic::resume_unwind(Box::new("out of memory")) })
    }));
    assert!(unwound.is_err());
    assert_eq!((payments.state(), payments.stats().totals.failures), (State::Open, 5));
    assert_eq!(denied_for(&payments), 5 * SECOND);
    clock.advance(5 * SECOND);
    admitted(&payments).success();
    assert_eq!(payments.state(), State::Closed);
}

/// How many of 8 threads that ask over and over are let through, none of which comes back.
fn let_through(payments: &Breaker) -> u32 {
    let (passed, barrier) = (AtomicU32::new(0), Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..200 {
                    if let Ok(probe) = payments.try_acquire().admitted() {
                        passed.fetch_add(1, Ordering::Relaxed);
                        std::mem::forget(probe);
                    }
                }
            });
        }
    });
    passed.into_inner()
}

/// resilience4j#1090: with one permitted call in the half-open state, several got through under
/// load.
#[test]
fn resilience4j_1090_exactly_one_probe_is_admitted_under_load() {
    let (payments, clock) = breaker("breaker 50%/4calls");
    open(&payments);
    for round in 0..20 {
        assert_eq!(let_through(&payments), 0, "open, round {round}");
        clock.advance(5 * SECOND);
        assert_eq!(let_through(&payments), 1, "half-open, round {round}");
        // The probe never comes back: that too is a failure.
        clock.advance(5 * SECOND);
        assert_eq!(payments.state(), State::Open);
    }
}

/// resilience4j#1432: calls that saw it open and lost the race to half-open were admitted beside
/// the permitted calls.
#[test]
fn resilience4j_1432_losing_the_half_open_race_is_a_denial() {
    for probes in [1, 2, 7] {
        for _ in 0..20 {
            let (payments, clock) = breaker(&format!("breaker 50%/4calls probes={probes}"));
            open(&payments);
            clock.advance(5 * SECOND);
            assert_eq!(let_through(&payments), probes);
        }
    }
}

/// Sentinel#1638: of two breakers the first let a probe through and the second denied the call. It
/// was never made, so it never ended, and the first stayed half-open for ever.
#[test]
fn sentinel_1638_a_probe_that_is_not_made_frees_its_slot() {
    let (first, clock) = breaker("breaker 50%/4calls open=1s");
    let second = Breaker::builder("breaker 50%/4calls open=1min").clock(clock.clone()).build().unwrap();
    open(&first);
    open(&second);
    clock.advance(SECOND);
    // The careful one says that the call was not made: the next may try.
    for _ in 0..3 {
        let probe = admitted(&first);
        assert!(!second.try_acquire().allowed());
        probe.ignore();
        assert_eq!(first.state(), State::HalfOpen);
    }
    // The careless one drops it: a failed probe, and a fresh sleep that ends.
    let probe = admitted(&first);
    assert!(!second.try_acquire().allowed());
    drop(probe);
    assert_eq!(first.state(), State::Open);
    clock.advance(60 * SECOND);
    let (one, two) = (admitted(&first), admitted(&second));
    one.success();
    two.success();
    assert_eq!((first.state(), second.state()), (State::Closed, State::Closed));
}
