//! A clock that is set while calls are under way.

use super::polled::Polled;
use sluicegate::guard::{Failure, Guard, Refused};
use sluicegate::{Alarm, Clock, ManualClock, Refusal, Span, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// As the system's: it can be set, and its alarms ring by the time that passes.
#[derive(Clone, Debug)]
struct Wall {
    passes: ManualClock,
    /// How far it was set back, in microseconds.
    back: Arc<AtomicU64>,
}

impl Wall {
    fn new() -> Wall {
        Wall { passes: ManualClock::default(), back: Arc::default() }
    }

    fn set_back(&self, by: Duration) {
        self.back.fetch_add(Span::from(by).as_micros(), Ordering::Relaxed);
    }
}

impl Clock for Wall {
    fn now(&self) -> Time {
        self.passes.now().before(Span::from_micros(self.back.load(Ordering::Relaxed)))
    }

    fn ring_at(&self, time: Time, alarm: Alarm) {
        self.passes.ring_at(self.passes.now().after(time.since(self.now())), alarm);
    }
}

/// How long it takes, in time that passes, when the clock is set back by an hour halfway through the first second.
fn takes<T>(wall: &Wall, mut call: Polled<'_, T>) -> (T, Duration) {
    let began = wall.passes.now();
    assert!(call.poll().is_none());
    wall.passes.advance(SECOND / 2);
    wall.set_back(HOUR);
    let output = call.run(&wall.passes, MS);
    (output, wall.passes.now().since(began).into())
}

fn hangs(guard: &Guard) -> Polled<'_, Result<u8, Failure<()>>> {
    Polled::new(guard.call(std::future::pending::<Result<u8, ()>>))
}

#[test]
fn set_back_by_an_hour_a_timeout_takes_its_time_again_and_not_an_hour() {
    let wall = Wall::new();
    let guard = Guard::builder("g").timeout(SECOND).clock(wall.clone()).build().unwrap();
    let (answer, took) = takes(&wall, hangs(&guard));
    assert_eq!(answer, Err(Failure::TimedOut));
    assert!((SECOND..=2 * SECOND).contains(&took), "{took:?}");
}

#[test]
fn set_back_by_an_hour_a_deadline_does_not_take_an_hour() {
    let wall = Wall::new();
    let builder = Guard::builder("g").deadline(SECOND).timeout(SECOND / 10);
    let guard = builder.retry("retry 100 budget=1000% floor=1000").clock(wall.clone()).build().unwrap();
    let (answer, took) = takes(&wall, hangs(&guard));
    assert_eq!(answer, Err(Failure::TimedOut));
    assert!((SECOND..=2 * SECOND).contains(&took), "{took:?}");
}

#[test]
fn set_back_by_an_hour_a_wait_for_a_place_does_not_take_an_hour() {
    let wall = Wall::new();
    let guard =
        Guard::builder("g").bulkhead("bulkhead 1 queue=1 wait=1s").clock(wall.clone()).build().unwrap();
    let _place = guard.bulkhead().unwrap().try_enter().unwrap();
    let (answer, took) = takes(&wall, hangs(&guard));
    assert_eq!(answer, Err(Failure::Refused(Refused::ByBulkhead(Refusal::TooLong))));
    assert!((SECOND..=2 * SECOND).contains(&took), "{took:?}");
}
