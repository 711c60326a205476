//! Bulkheads that find their own limit.

use sluicegate_guard::{Bulkhead, Clock as _, Event, ManualClock, Observer, Outcome, Time, bulkhead::Permit};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Concurrent calls of a given duration.
fn calls(bulkhead: &Bulkhead, clock: &ManualClock, millis: u64, outcome: Outcome) {
    let permits: Vec<Permit> = std::iter::from_fn(|| bulkhead.try_acquire()).collect();
    clock.advance(Duration::from_millis(millis));
    for permit in permits {
        permit.finish(outcome);
    }
}

#[derive(Default)]
struct Moves(Mutex<Vec<(u32, u32)>>);

impl Observer for Moves {
    fn event(&self, event: &Event) {
        if let Event::LimitChanged { name, from, to, .. } = event {
            assert_eq!(name.as_deref(), Some("payments"));
            self.0.lock().unwrap().push((*from, *to));
        }
    }
}

fn made(text: &str) -> (Bulkhead, ManualClock, Arc<Moves>) {
    let (clock, moves) = (ManualClock::at(Time::EPOCH), Arc::new(Moves::default()));
    let builder = Bulkhead::builder("bulkhead 1").adaptive(text).clock(clock.clone()).name("payments");
    (builder.observer(Arc::clone(&moves)).build().unwrap(), clock, moves)
}

#[test]
fn the_limit_grows_with_good_calls_and_shrinks_with_bad_ones() {
    let (bulkhead, clock, moves) = made("aimd 2 min=1 max=6");
    assert_eq!(bulkhead.stats().limit, 2, "it begins with its own number, not with the bulkhead's");
    calls(&bulkhead, &clock, 10, Outcome::Success);
    assert_eq!(bulkhead.stats().limit, 4);
    bulkhead.try_acquire().unwrap().finish(Outcome::Failure);
    assert_eq!(bulkhead.stats().limit, 3);
    bulkhead.try_acquire().unwrap().finish(Outcome::Ignored);
    assert_eq!(
        *moves.0.lock().unwrap(),
        [(2, 3), (3, 4), (4, 3)],
        "each change is reported, and nothing else"
    );
}

#[test]
fn a_gradient_measures_calls_by_the_bulkheads_clock() {
    let (bulkhead, clock, _) = made("gradient 20 min=5");
    (0..10).for_each(|_| calls(&bulkhead, &clock, 50, Outcome::Success));
    let usual = bulkhead.stats().limit;
    assert!(usual > 20, "{usual}");
    calls(&bulkhead, &clock, 500, Outcome::Success);
    assert!(bulkhead.stats().limit < usual);
}

#[test]
fn a_dropped_call_counts_only_if_it_was_too_slow() {
    let (bulkhead, clock, _) = made("aimd 10 min=1 timeout=1s");
    drop(bulkhead.try_acquire());
    assert_eq!(bulkhead.stats().limit, 10);
    let slow = bulkhead.try_acquire();
    clock.advance(Duration::from_millis(1_001));
    drop(slow);
    assert_eq!(bulkhead.stats().limit, 9);
}

#[test]
fn waiters_are_granted_permits_when_the_limit_grows() {
    let clock = ManualClock::at(Time::EPOCH);
    let builder = Bulkhead::builder("bulkhead 1 queue=5 wait=1min").adaptive("aimd 1 max=4");
    let bulkhead = builder.clock(clock.clone()).build().unwrap();
    let first = bulkhead.try_acquire().unwrap();
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let bulkhead = bulkhead.clone();
            std::thread::spawn(move || bulkhead.acquire().blocking().allowed())
        })
        .collect();
    while bulkhead.stats().waiting < 2 {
        std::thread::yield_now();
    }
    // Its own permit and one more.
    first.finish(Outcome::Success);
    assert!(waiting.into_iter().all(|one| one.join().unwrap()));
    assert!(bulkhead.stats().limit >= 2);
}

#[test]
fn an_invalid_line_is_rejected_by_build() {
    let error = Bulkhead::adaptive("aimd 20 backof=90%").unwrap_err().to_string();
    assert!(error.contains("unknown option \"backof\"; did you mean backoff=?"), "{error}");
    let error = Bulkhead::builder("bulkhed 1").adaptive("aimd 20").build().unwrap_err().to_string();
    assert!(error.contains("bulkhed"), "{error}");
}

#[test]
fn calls_across_a_backward_clock_step_are_not_learned() {
    let (bulkhead, clock, _) = made("gradient 20 min=5");
    clock.advance(Duration::from_secs(3600));
    (0..10).for_each(|_| calls(&bulkhead, &clock, 50, Outcome::Success));
    let permits: Vec<Permit> = std::iter::from_fn(|| bulkhead.try_acquire()).collect();
    clock.set(clock.now().saturating_sub(sluicegate_guard::Span::from_micros(1_000_000)));
    for permit in permits {
        permit.finish(Outcome::Success);
    }
    let before = bulkhead.stats().limit;
    (0..3).for_each(|_| calls(&bulkhead, &clock, 50, Outcome::Success));
    assert!(bulkhead.stats().limit >= before, "a call that takes as long as ever is not slow");
}

#[test]
fn calls_shed_by_an_adaptive_limit_are_no_breaker_failures() {
    for (line, opens) in [("aimd 1 min=1 max=1", false), ("bulkhead 1", true)] {
        let guard =
            sluicegate_guard::Guard::builder("bank").breaker("breaker 50%/2calls").bulkhead(line).build();
        let guard = guard.unwrap();
        let permit = guard.bulkhead().unwrap().try_acquire().unwrap();
        for _ in 0..2 {
            assert!(guard.call_blocking(|| Ok::<_, ()>(())).unwrap_err().is_denied());
        }
        drop(permit);
        assert_eq!(guard.call_blocking(|| Ok::<_, ()>(())).is_err(), opens, "{line}");
    }
}
