//! UTC is set while limiters run: durations do not notice, and windows aligned to UTC follow.

use crate::wait::caller::Caller;
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::semaphore::Semaphore;
use sluicegate::{Limiter, MemoryStore, RetryAfter, Span, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const TICK: Span = Span::from_micros(1);
const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// All that measure durations, each with a count of 3 or 1.
const DURATIONS: [&str; 8] = [
    "token-bucket 3/h",
    "leaky-bucket 3/h",
    "min-interval 1h",
    "pacer 3/h queue=2",
    "smooth 3/h",
    "sliding-log 3/h",
    "fixed-window 3/h start=first",
    "token-bucket 3/h + sliding-log 3/h",
];

/// All that follow UTC. The last starts before the time of the clock.
const ALIGNED: [&str; 4] = [
    "fixed-window 3/day",
    "fixed-window 3/day tz=Asia/Shanghai",
    "sliding-window 3/12h",
    "fixed-window 3/day start=2020-01-01T00:00:00Z",
];

fn limiter(limit: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limit).clock(clock.clone()).build().unwrap(), clock)
}

fn step(clock: &ManualClock, forward: Duration, back: Duration) {
    let utc = clock.utc_ahead().to_utc(clock.now());
    clock.set_utc(utc.saturating_add(forward.into()).saturating_sub(back.into()));
}

/// The same calls with and without steps in between: every decision is the same.
#[test]
fn durations_do_not_notice_a_step() {
    let steps = [(Duration::ZERO, 10 * YEAR), (HOUR, Duration::ZERO), (20 * YEAR, HOUR), (HOUR, YEAR)];
    for limit in DURATIONS {
        for in_store in [false, true] {
            let decisions = [false, true].map(|with_steps| {
                let clock = ManualClock::default();
                let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
                let builder = Limiter::builder(limit).clock(clock.clone());
                let builder = if in_store { builder.in_store(&store, "scope") } else { builder };
                let limiter = builder.build().unwrap();
                let mut decisions = Vec::new();
                for round in 0..24 {
                    decisions.push(limiter.check("k"));
                    if with_steps {
                        let (forward, back) = steps[round % steps.len()];
                        step(&clock, forward, back);
                    }
                    clock.advance(7 * HOUR / 60);
                }
                decisions
            });
            assert_eq!(decisions[0], decisions[1], "{limit}");
        }
    }
}

#[test]
fn aligned_windows_begin_when_utc_is_set_forward() {
    for limit in ALIGNED {
        let (limiter, clock) = limiter(limit);
        let used: Vec<bool> = (0..4).map(|_| limiter.check("k").allowed()).collect();
        assert_eq!(used, [true, true, true, false], "{limit}");
        step(&clock, 24 * HOUR, Duration::ZERO);
        assert!(limiter.check("k").allowed(), "{limit}");
        // In UTC, at a boundary of it.
        let utc = clock.utc_ahead().to_utc(clock.now());
        let next = limiter.next_window("k");
        assert!(next > utc && next.since(utc) <= Span::from(24 * HOUR), "{limit}: {next:?}");
        assert_eq!(next.as_micros() % 3_600_000_000, 0, "{limit}");
    }
}

/// As SPEC says of clock steps: the window of the latest allowed call stays, and no one waits for
/// longer than the step plus the usual wait.
#[test]
fn aligned_windows_stay_closed_when_utc_is_set_back() {
    for limit in ALIGNED {
        let (limiter, clock) = limiter(limit);
        while limiter.check("k").allowed() {}
        let Some(RetryAfter::After(before)) = limiter.check("k").retry_after() else { panic!("{limit}") };
        step(&clock, Duration::ZERO, HOUR);
        let Some(RetryAfter::After(after)) = limiter.check("k").retry_after() else { panic!("{limit}") };
        assert_eq!(after, before.saturating_add(HOUR.into()), "{limit}");
        clock.advance(after.saturating_sub(TICK).into());
        assert!(!limiter.check("k").allowed(), "{limit}");
        clock.advance(TICK.into());
        assert!(limiter.check("k").allowed(), "{limit}");
    }
}

/// A list may have both kinds.
#[test]
fn in_a_list_each_limit_has_its_own_time() {
    let (limiter, clock) = limiter("min-interval 1h + fixed-window 2/day");
    assert!(limiter.check("k").allowed());
    step(&clock, 24 * HOUR, Duration::ZERO);
    // A new day, but not an hour later.
    let denied = limiter.check("k");
    assert_eq!((denied.remaining(), denied.retry_after()), (0, Some(RetryAfter::After(HOUR.into()))));
    clock.advance(HOUR);
    assert_eq!((limiter.check("k").allowed(), limiter.peek("other", 0).remaining()), (true, 1));
    clock.advance(HOUR);
    assert!(limiter.check("k").allowed(), "the second of the new day");
}

#[test]
fn the_next_window_is_in_utc() {
    for (limit, after) in [("min-interval 1h", HOUR), ("sliding-log 1/h", HOUR), ("smooth 1/h", HOUR)] {
        let (limiter, clock) = limiter(limit);
        assert!(limiter.check("k").allowed());
        step(&clock, 3 * YEAR, Duration::ZERO);
        let utc = clock.now().saturating_add((3 * YEAR).into());
        assert_eq!(limiter.next_window("k"), utc.saturating_add(after.into()), "{limit}");
    }
}

/// A look at a clock that is an hour ahead must not expire leases.
#[test]
fn no_lease_is_granted_twice() {
    let clock = ManualClock::default();
    let semaphore = Semaphore::builder("concurrency 3 ttl=30s").clock(clock.clone()).build().unwrap();
    let leases: Vec<_> = (0..3).map(|_| semaphore.try_acquire("k", 1).lease().unwrap()).collect();
    step(&clock, HOUR, Duration::ZERO);
    assert!(!semaphore.try_acquire("k", 1).allowed());
    step(&clock, Duration::ZERO, HOUR);
    assert!(!semaphore.try_acquire("k", 1).allowed());
    clock.advance(Duration::from_secs(30));
    assert!(semaphore.try_acquire("k", 1).allowed());
    drop(leases);
}

#[test]
fn a_waiter_is_admitted_when_utc_is_set_to_its_window() {
    let (limiter, clock) = limiter("fixed-window 1/day");
    assert!(limiter.check("k").allowed());
    let mut waiter = Caller::new(limiter.acquire("k", 1));
    assert!(waiter.poll().is_none());
    step(&clock, Duration::ZERO, HOUR);
    assert!(waiter.poll().is_none());
    step(&clock, 24 * HOUR, Duration::ZERO);
    assert!(waiter.poll().is_some_and(|acquired| acquired.allowed()));
}

/// Set back, the window ends later, and the waiter is admitted then and not before.
#[test]
fn a_waiter_waits_longer_when_utc_is_set_back() {
    let (limiter, clock) = limiter("fixed-window 1/day");
    assert!(limiter.check("k").allowed());
    let until_end = limiter.next_window("k").since(clock.now());
    let mut waiter = Caller::new(limiter.acquire("k", 1));
    assert!(waiter.poll().is_none());
    step(&clock, Duration::ZERO, HOUR);
    clock.advance(until_end.saturating_add(HOUR.into()).saturating_sub(TICK).into());
    assert!(waiter.poll().is_none());
    clock.advance(TICK.into());
    assert!(waiter.poll().is_some_and(|acquired| acquired.allowed()));
}

/// A full store notices that keys have recovered early, within ten seconds.
#[test]
fn keys_that_recover_by_a_step_make_room() {
    let clock = ManualClock::default();
    let limiter = Limiter::builder("fixed-window 1/day").clock(clock.clone()).max_keys(100).build().unwrap();
    for key in 0..101 {
        assert!(limiter.check(key).allowed());
    }
    let evicted = limiter.stats().evicted;
    assert_eq!(evicted, 1);
    step(&clock, 24 * HOUR, Duration::ZERO);
    clock.advance(Duration::from_secs(10));
    for key in 200..300 {
        assert!(limiter.check(key).allowed());
    }
    assert_eq!(limiter.stats().evicted, evicted);
}

/// Counts how often it is read.
#[derive(Clone, Default, Debug)]
struct Counting(Arc<AtomicUsize>);

impl Clock for Counting {
    fn now(&self) -> Time {
        self.0.fetch_add(1, Ordering::Relaxed);
        Time::EPOCH
    }
}

/// The first reading of the system clock is slow, so it must not happen in a call.
#[test]
fn the_clock_is_first_read_when_a_limiter_is_built() {
    let read = |build: &dyn Fn(Counting)| {
        let clock = Counting::default();
        build(clock.clone());
        clock.0.load(Ordering::Relaxed) > 0
    };
    assert!(read(&|clock| drop(Limiter::builder("sliding-log 1/s").start(Time::EPOCH).clock(clock).build())));
    assert!(read(&|clock| drop(MemoryStore::builder().clock(clock).build())));
    assert!(read(&|clock| drop(Semaphore::builder("concurrency 1").clock(clock).build())));
}
