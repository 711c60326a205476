//! Trying again, and when not.

use super::polling::{Polled, sleep};
use sluicegate_guard::guard::{Failure, Guard};
use sluicegate_guard::retry::Retries;
use sluicegate_guard::{Clock as _, ManualClock, Time};
use std::cell::{Cell, RefCell};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_call_is_retried_until_it_succeeds() {
    let clock = ManualClock::default();
    let guard = Guard::builder("g").retry("retry 2").clock(clock.clone()).build().unwrap();
    let calls = Cell::new(0);
    let mut call = Polled::new(guard.call(|| {
        calls.set(calls.get() + 1);
        let made = calls.get();
        async move { if made == 3 { Ok(made) } else { Err(()) } }
    }));
    assert_eq!(call.run(&clock, MS), Ok(3));
    let mut never = Polled::new(guard.call(|| async { Err::<u8, _>("down") }));
    assert_eq!(never.run(&clock, MS), Err(Failure::Failed("down")));
    assert_eq!((guard.stats().allowed, guard.stats().retried), (6, 4));
}

/// 100 calls per second for 30 s, all failing, with two retries each: at most a tenth plus the
/// floor in any ten seconds.
#[test]
fn in_an_outage_retries_are_a_tenth_and_the_floor() {
    let clock = ManualClock::default();
    let guard =
        Guard::builder("g").retry("retry 2 budget=10% backoff=1ms").clock(clock.clone()).build().unwrap();
    let mut retries: Vec<Time> = Vec::new();
    for _ in 0..3_000 {
        let made = RefCell::new(Vec::new());
        let mut call = Polled::new(guard.call(|| {
            made.borrow_mut().push(clock.now());
            async { Err::<u8, ()>(()) }
        }));
        assert!(call.run(&clock, Duration::from_micros(100)).is_err());
        drop(call);
        retries.extend(made.into_inner().iter().skip(1));
        clock.advance(10 * MS);
    }
    assert!(guard.stats().retries_denied > 2_000, "{:?}", guard.stats());
    let second = |time: &Time| time.as_micros() / 1_000_000;
    let first = second(&ManualClock::default().now());
    for from in first..first + 30 {
        let within = retries.iter().filter(|time| (from..from + 10).contains(&second(time))).count();
        // At most 1000 calls begin in ten seconds.
        assert!(within <= 100 + 10, "{within} retries in ten seconds");
    }
    assert!(retries.len() >= 300, "{} retries", retries.len());
}

#[test]
fn a_budget_is_shared_by_guards() {
    let clock = ManualClock::default();
    let retries = Retries::seeded("retry 1 budget=0% floor=3 backoff=0s", 1).unwrap();
    let guard = |name: &str| Guard::builder(name).retry(&retries).clock(clock.clone()).build().unwrap();
    let guards = [guard("one"), guard("other")];
    for guard in guards.iter().cycle().take(10) {
        assert!(Polled::new(guard.call(|| async { Err::<u8, ()>(()) })).run(&clock, MS).is_err());
    }
    assert_eq!(guards.iter().map(|guard| guard.stats().retried).sum::<u64>(), 3);
    assert_eq!(guards.iter().map(|guard| guard.stats().retries_denied).sum::<u64>(), 7);
}

#[test]
fn no_attempt_begins_or_continues_after_the_deadline() {
    for seed in 0..50 {
        let clock = ManualClock::default();
        let builder =
            Guard::builder("g").deadline(SECOND).retry("retry 100 budget=1000% floor=100 backoff=300ms");
        let guard = builder.timeout(250 * MS).seed(seed).clock(clock.clone()).build().unwrap();
        let began = clock.now();
        let starts = RefCell::new(Vec::new());
        let mut call = Polled::new(guard.call(|| {
            starts.borrow_mut().push(clock.now().since(began));
            async {
                sleep(&clock, 200 * MS).await;
                Err::<u8, ()>(())
            }
        }));
        let answer = call.run(&clock, MS);
        assert!(matches!(answer, Err(Failure::Failed(()) | Failure::TimedOut)), "{answer:?}");
        let took = clock.now().since(began);
        assert!(Duration::from(took) <= SECOND, "seed {seed}: {took}");
        assert!(starts.borrow().iter().all(|start| Duration::from(*start) < SECOND));
    }
    let clock = ManualClock::default();
    let guard = Guard::builder("g").deadline(SECOND).clock(clock.clone()).build().unwrap();
    let mut hangs = Polled::new(guard.call(std::future::pending::<Result<u8, ()>>));
    let began = clock.now();
    assert_eq!(hangs.run(&clock, MS), Err(Failure::TimedOut));
    assert_eq!(Duration::from(clock.now().since(began)), SECOND);
}

/// The same seed gives the same rests, another one others, and all of them lie within bounds.
#[test]
fn delays_are_drawn_from_a_seed() {
    let rests = |seed| {
        let clock = ManualClock::default();
        let builder = Guard::builder("g").retry("retry 5 budget=1000% backoff=100ms max-backoff=400ms");
        let guard = builder.seed(seed).clock(clock.clone()).build().unwrap();
        let starts = RefCell::new(Vec::new());
        let mut call = Polled::new(guard.call(|| {
            starts.borrow_mut().push(clock.now());
            async { Err::<u8, ()>(()) }
        }));
        assert!(call.run(&clock, MS).is_err());
        let starts = starts.borrow();
        starts.windows(2).map(|pair| pair[1].since(pair[0]).as_millis_up()).collect::<Vec<u64>>()
    };
    assert_eq!(rests(1), rests(1));
    assert_ne!(rests(1), rests(2));
    for seed in 0..100 {
        let most = [100, 200, 400, 400, 400];
        assert!(rests(seed).iter().zip(most).all(|(rest, most)| *rest <= most), "{:?}", rests(seed));
    }
}

#[test]
fn a_call_that_may_not_retry_is_made_once() {
    let guard = Guard::builder("g").retry("retry 2").build().unwrap();
    let answer = guard.call(|| async { Err::<u8, _>("down") }).may_retry(false).blocking();
    assert_eq!((answer, guard.stats().retried), (Err(Failure::Failed("down")), 0));
}
