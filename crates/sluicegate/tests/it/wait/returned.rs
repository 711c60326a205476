//! Waiters are admitted when the charge of an expired receipt is returned, though no call comes.

use super::caller::Caller;
use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Receipt, ReserveOptions, Ttl};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder("token-bucket 1/h burst=10").clock(clock.clone()).build().unwrap(), clock)
}

fn reserve(limiter: &Limiter, cost: u64, ttl: Ttl) -> Receipt {
    let reserved = limiter.reserve("k", cost, ReserveOptions::default().ttl(ttl)).unwrap();
    reserved.keep().unwrap()
}

#[test]
fn a_waiter_is_woken_when_a_charge_is_returned() {
    let (limiter, clock) = limiter();
    reserve(&limiter, 3, Ttl::cancel(2 * SECOND));
    reserve(&limiter, 4, Ttl::cancel(5 * SECOND));
    reserve(&limiter, 3, Ttl::keep(SECOND));
    let mut first = Caller::new(limiter.acquire("k", 2));
    let mut second = Caller::new(limiter.acquire("k", 3));
    clock.advance(Duration::from_micros(1_999_999));
    assert_eq!((first.woken(), second.woken()), (0, 0));
    clock.advance(Duration::from_micros(1));
    assert_eq!((first.woken(), second.woken()), (1, 0), "3 were returned, 2 of them taken");
    assert!(first.poll().unwrap().allowed());
    clock.advance(3 * SECOND);
    assert_eq!(second.woken(), 1);
    assert_eq!(second.poll().unwrap().waited(), 5 * SECOND);
    assert_eq!(limiter.peek("k", 0).remaining(), 2);
}

#[test]
fn a_waiter_is_woken_when_a_shorter_time_to_live_ends() {
    let (limiter, clock) = limiter();
    let receipt = reserve(&limiter, 10, Ttl::cancel(60 * SECOND));
    let mut caller = Caller::new(limiter.acquire("k", 10));
    assert!(!limiter.extend(&receipt, 1, None).unwrap().allowed(), "it would overtake the waiter");
    assert!(limiter.extend(&receipt, 0, Some(SECOND)).unwrap().allowed());
    clock.advance(SECOND);
    assert_eq!(caller.woken(), 1);
    assert!(caller.poll().unwrap().allowed());
}

/// What a dropped waiter could return is not known once charges below its own were returned. It
/// never returns more than its own.
#[test]
fn a_dropped_waiter_returns_no_more_than_its_charge() {
    let (limiter, clock) = limiter();
    reserve(&limiter, 5, Ttl::cancel(SECOND));
    reserve(&limiter, 5, Ttl::cancel(2 * SECOND));
    let caller = Caller::new(limiter.acquire("k", 5));
    clock.advance(SECOND);
    assert_eq!((caller.woken(), limiter.peek("k", 0).remaining()), (1, 0));
    clock.advance(SECOND);
    assert!(limiter.check_cost("k", 5).allowed());
    drop(caller);
    assert!(limiter.peek("k", 0).remaining() <= 5);
}

#[test]
fn many_returns_are_awaited_one_after_another() {
    let (limiter, clock) = limiter();
    for second in 1..=10 {
        reserve(&limiter, 1, Ttl::cancel(second * SECOND));
    }
    let mut caller = Caller::new(limiter.acquire("k", 10));
    for second in 1..10 {
        clock.advance(SECOND);
        assert_eq!(caller.woken(), 0, "after {second} s");
    }
    clock.advance(SECOND);
    assert!(caller.poll().unwrap().allowed());
}
