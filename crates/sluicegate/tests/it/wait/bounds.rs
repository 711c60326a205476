//! Hopeless calls are denied immediately, and every bound is kept.

use super::caller::Caller;
use sluicegate::OnFull;
use sluicegate::clock::ManualClock;
use sluicegate::wait::{Acquired, Denial};
use sluicegate::{Limiter, RetryAfter, Span, Time};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn retry_after(acquired: Acquired) -> Option<u64> {
    match acquired.decision().retry_after() {
        Some(RetryAfter::After(wait)) => Some(wait.as_micros()),
        _ => None,
    }
}

#[test]
fn a_hopeless_deadline_is_denied_immediately() {
    let clock = ManualClock::default();
    let limiter = Limiter::builder("min-interval 1s").clock(clock.clone()).build().unwrap();
    assert!(limiter.check("k").allowed());
    let first = Caller::new(limiter.acquire("k", 1));
    let within = |micros| Caller::new(limiter.acquire_within("k", 1, Duration::from_micros(micros)));
    let refused = within(1_999_999).acquired().unwrap();
    assert_eq!(refused.denial(), Some(Denial::TooLong));
    assert_eq!((retry_after(refused), refused.waited()), (Some(1), Duration::ZERO));
    assert!(within(2_000_000).waits());
    let until = |time: Time| Caller::new(limiter.acquire_until("k", 1, time));
    let second = limiter.now().saturating_add(Span::from(2 * SECOND));
    assert!(until(second).waits());
    let just_before = limiter.now().saturating_add(Span::from_micros(1_999_999));
    assert_eq!(until(just_before).acquired().unwrap().denial(), Some(Denial::TooLong));
    // It also reports when to retry: then the deadline can be met.
    assert!(first.waits());
    clock.advance(Duration::from_micros(1));
    assert!(within(1_999_999).waits());
}

#[test]
fn max_queue_and_max_waiters_bound_the_queue() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("min-interval 1s").clock(clock.clone());
    let limiter = builder.max_queue(2).max_waiters(3).build().unwrap();
    assert!(limiter.check("a").allowed() && limiter.check("b").allowed());
    let ask = |key| Caller::new(limiter.acquire(key, 1));
    let mut held = vec![ask("a"), ask("a")];
    clock.advance(Duration::from_millis(300));
    let refused = ask("a").acquired().unwrap();
    assert_eq!(refused.denial(), Some(Denial::QueueFull));
    // There is space when the head has been admitted.
    assert_eq!(retry_after(refused), Some(700_000));
    held.push(ask("b"));
    assert!(held[2].waits());
    // Three wait in total.
    assert_eq!(ask("b").acquired().unwrap().denial(), Some(Denial::QueueFull));
    clock.advance(Duration::from_millis(700));
    assert!(ask("a").waits());
}

#[test]
fn a_pacers_queue_bounds_its_waiters() {
    let clock = ManualClock::default();
    let limiter = Limiter::builder("pacer 10/s queue=2").clock(clock.clone()).build().unwrap();
    let ask = || Caller::new(limiter.acquire("k", 1));
    let leave = ask();
    assert!(leave.acquired().is_some_and(|acquired| acquired.allowed()));
    let queue = [ask(), ask()];
    assert!(queue.iter().all(Caller::waits));
    let refused = ask().acquired().unwrap();
    assert_eq!((refused.denial(), retry_after(refused)), (Some(Denial::QueueFull), Some(100_000)));
    clock.advance(Duration::from_millis(100));
    assert!(ask().waits());
}

#[test]
fn a_cost_above_the_limit_is_never_admitted() {
    let limiter = Limiter::builder("token-bucket 1/s burst=3").clock(ManualClock::default()).build().unwrap();
    let acquired = limiter.acquire("k", 4).blocking();
    assert_eq!(
        (acquired.denial(), acquired.decision().retry_after()),
        (Some(Denial::Never), Some(RetryAfter::Never))
    );
    assert_eq!(limiter.peek("k", 0).remaining(), 3);
    assert!(limiter.acquire("k", 0).blocking().allowed());
}

#[test]
fn a_call_without_room_for_its_key_is_denied() {
    let builder = Limiter::builder("min-interval 1h").clock(ManualClock::default());
    let limiter = builder.max_keys(1).on_full(OnFull::Deny).build().unwrap();
    assert!(limiter.check("first").allowed());
    assert_eq!(limiter.acquire("second", 1).blocking().denial(), Some(Denial::NoRoom));
}

#[test]
fn settings_out_of_bounds_are_rejected_by_name() {
    let error = Limiter::builder("min-interval 1h").max_queue(usize::MAX).build().unwrap_err().to_string();
    assert_eq!(error, format!("max_queue is {}; use 0 to 100000000", usize::MAX));
    let error = Limiter::builder("min-interval 1h").max_waiters(100_000_001).build().unwrap_err();
    assert_eq!(error.to_string(), "max_waiters is 100000001; use 0 to 100000000");
    // Without a queue `acquire` decides like a check.
    let limiter = Limiter::builder("min-interval 1h").max_queue(0).build().unwrap();
    assert!(limiter.acquire("k", 1).blocking().allowed());
    assert_eq!(limiter.acquire("k", 1).blocking().denial(), Some(Denial::QueueFull));
}
