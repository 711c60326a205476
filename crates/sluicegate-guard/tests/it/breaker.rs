//! Circuit breakers: text, calls, threads, keys, and published bugs of other implementations.

mod guards;
mod keyed;
mod published;
mod text;
mod threads;

use sluicegate_guard::breaker::{Admission, Admitted, Breaker, State};
use sluicegate_guard::{ManualClock, RetryAfter, Span};
use std::time::Duration;

fn breaker(rules: &str) -> (Breaker, ManualClock) {
    let clock = ManualClock::default();
    let breaker =
        Breaker::builder(rules).clock(clock.clone()).build().unwrap_or_else(|error| panic!("{error}"));
    (breaker, clock)
}

/// Under `breaker 50%/4calls` and the like: four calls fail.
fn open(breaker: &Breaker) {
    for _ in 0..4 {
        admitted(breaker).failure();
    }
    assert_eq!(breaker.state(), State::Open);
}

fn admitted(breaker: &Breaker) -> Admitted<'static> {
    match breaker.try_acquire().into_owned() {
        Admission::Allowed(admitted) => admitted,
        Admission::Denied(denied) => panic!("{denied}"),
    }
}

/// How long a denied call is to wait.
fn denied_for(breaker: &Breaker) -> Duration {
    match breaker.try_acquire() {
        Admission::Allowed(_) => panic!("allowed"),
        Admission::Denied(denied) => match denied.retry_after() {
            RetryAfter::After(wait) => wait.into(),
            RetryAfter::Never => Span::MAX.into(),
        },
    }
}

const SECOND: Duration = Duration::from_secs(1);
