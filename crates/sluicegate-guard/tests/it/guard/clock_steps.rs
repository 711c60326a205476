//! A clock that is set while calls are under way.

use super::polling::Polled;
use crate::wall_clock::WallClock;
use sluicegate_guard::guard::{Failure, Guard, GuardDenial};
use sluicegate_guard::{Clock as _, Denial};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Returns the elapsed time of a call when the clock is set back by an hour within the first
/// second.
fn takes<T>(wall: &WallClock, mut call: Polled<'_, T>) -> (T, Duration) {
    let began = wall.elapsed.now();
    assert!(call.poll().is_none());
    wall.elapsed.advance(SECOND / 2);
    wall.set_back(HOUR);
    let output = call.run(&wall.elapsed, MS);
    (output, wall.elapsed.now().since(began).into())
}

fn hangs(guard: &Guard) -> Polled<'_, Result<u8, Failure<()>>> {
    Polled::new(guard.call(std::future::pending::<Result<u8, ()>>))
}

#[test]
fn a_clock_set_back_an_hour_restarts_a_timeout() {
    let wall = WallClock::new();
    let guard = Guard::builder("g").timeout(SECOND).clock(wall.clone()).build().unwrap();
    let (answer, took) = takes(&wall, hangs(&guard));
    assert_eq!(answer, Err(Failure::TimedOut));
    assert!((SECOND..=2 * SECOND).contains(&took), "{took:?}");
}

#[test]
fn a_clock_set_back_an_hour_restarts_a_deadline() {
    let wall = WallClock::new();
    let builder = Guard::builder("g").deadline(SECOND).timeout(SECOND / 10);
    let guard = builder.retry("retry 100 budget=1000% floor=1000").clock(wall.clone()).build().unwrap();
    let (answer, took) = takes(&wall, hangs(&guard));
    assert_eq!(answer, Err(Failure::TimedOut));
    assert!((SECOND..=2 * SECOND).contains(&took), "{took:?}");
}

#[test]
fn a_clock_set_back_an_hour_restarts_a_wait() {
    let wall = WallClock::new();
    let guard =
        Guard::builder("g").bulkhead("bulkhead 1 queue=1 wait=1s").clock(wall.clone()).build().unwrap();
    let _permit = guard.bulkhead().unwrap().try_acquire().unwrap();
    let (answer, took) = takes(&wall, hangs(&guard));
    assert_eq!(answer, Err(Failure::Denied(GuardDenial::Bulkhead(Denial::TooLong))));
    assert!((SECOND..=2 * SECOND).contains(&took), "{took:?}");
}
