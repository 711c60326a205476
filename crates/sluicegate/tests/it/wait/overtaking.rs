//! Calls that do not wait, while others do.

use super::caller::Caller;
use sluicegate::MemoryStore;
use sluicegate::clock::ManualClock;
use sluicegate::wait::Denial;
use sluicegate::{Limiter, RetryAfter, Span, check_all};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn limiter(limit: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limit).clock(clock.clone()).build().unwrap(), clock)
}

/// A check is denied, and reports exactly when the queue is empty and the call allowed.
#[test]
fn a_check_does_not_overtake() {
    // The queue is empty after 4 s, 1 s and 1 s; one more call is allowed a second later.
    for (limit, expected_micros) in [
        ("token-bucket 1/s burst=4", 4_100_000),
        ("fixed-window 4/1s start=first", 1_100_000),
        ("sliding-log 4/1s", 1_100_000),
    ] {
        let (limiter, clock) = limiter(limit);
        assert!(limiter.check_cost("k", 4).allowed());
        let mut large = Caller::new(limiter.acquire("k", 4));
        clock.advance(Duration::from_millis(900));
        // Without the queue a bucket would soon have a token for it.
        for _ in 0..3 {
            let reported = limiter.check("k");
            let Some(RetryAfter::After(reported)) = reported.retry_after() else {
                panic!("{limit}: {reported:?}")
            };
            assert_eq!(limiter.peek("k", 1).retry_after(), Some(RetryAfter::After(reported)));
            assert_eq!(reported, Span::from_micros(expected_micros), "{limit}");
        }
        let (decision, taken) = limiter.take("k", 4).unwrap();
        assert_eq!((decision.allowed(), taken), (false, 0));
        assert!(!limiter.reserve("k", 1, SECOND).unwrap().allowed());
        clock.advance(Duration::from_micros(expected_micros - 1));
        assert!(!limiter.check("k").allowed(), "{limit}: one tick early");
        assert!(large.poll().unwrap().allowed());
        clock.advance(Duration::from_micros(1));
        assert!(limiter.check("k").allowed(), "{limit}: at the reported time");
    }
}

#[test]
fn check_all_does_not_overtake_either() {
    let (users, clock) = limiter("min-interval 1s");
    let site = Limiter::builder("token-bucket 9/s").clock(clock.clone()).build().unwrap();
    assert!(users.check("user:42").allowed());
    let _waiter = Caller::new(users.acquire("user:42", 1));
    let denied = check_all(&[site.call((), 1), users.call("user:42", 1)]).unwrap();
    assert_eq!(denied.retry_after(), Some(RetryAfter::After(Span::from(2 * SECOND))));
    assert_eq!((denied.denied_call(), denied.denied_by()), (Some(1), Some(0)));
    assert_eq!(site.peek((), 0).remaining(), 9, "nothing is charged");
    assert!(check_all(&[site.call((), 1), users.call("user:44", 1)]).unwrap().allowed());
}

#[test]
fn returned_cost_admits_the_next_waiter() {
    let (limiter, clock) = limiter("token-bucket 1/h burst=2");
    let reserved = limiter.reserve("k", 2, Duration::ZERO).unwrap();
    let mut first = Caller::new(limiter.acquire("k", 1));
    let mut second = Caller::new(limiter.acquire("k", 1));
    assert_eq!(limiter.refund("k", 1).unwrap().limit(), 2);
    assert!(first.poll().is_some() && second.poll().is_none());
    let receipt = reserved.keep().unwrap();
    assert!(limiter.cancel(&receipt));
    assert!(second.poll().is_some());
    let mut third = Caller::new(limiter.acquire("k", 1));
    assert!(third.poll().is_none());
    limiter.reset("k");
    assert!(third.poll().is_some());
    drop(clock);
}

#[test]
fn a_change_of_limits_replans_the_queue() {
    let (limiter, clock) = limiter("token-bucket 1/h burst=3");
    assert!(limiter.check_cost("k", 3).allowed());
    let mut callers: Vec<Caller<'_>> = [1, 3].map(|cost| Caller::new(limiter.acquire("k", cost))).into();
    let mut hasty = Caller::new(limiter.acquire_within("k", 1, 5 * 3_600 * SECOND));
    limiter.change("token-bucket 1/s burst=3").unwrap();
    clock.advance(SECOND);
    assert!(callers[0].poll().is_some());
    clock.advance(3 * SECOND);
    assert!(callers[1].poll().is_some());
    // Slower again: now the last waiter cannot meet its deadline, and is denied.
    limiter.change("token-bucket 1/d burst=3").unwrap();
    assert_eq!(hasty.poll().unwrap().denial(), Some(Denial::TooLong));
    // Below the cost of a waiter: no wait helps any more.
    let mut large = Caller::new(limiter.acquire("k", 3));
    limiter.change("token-bucket 1/d burst=2").unwrap();
    assert_eq!(large.poll().unwrap().denial(), Some(Denial::Never));
}

#[test]
fn limiters_of_one_scope_share_a_queue() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).max_queue(3).build().unwrap();
    let limiter =
        |limit: &str, scope: &'static str| Limiter::builder(limit).in_store(&store, scope).build().unwrap();
    let (one, two) = (limiter("min-interval 1s", "a"), limiter("min-interval 1s", "a"));
    let other = limiter("min-interval 1s", "b");
    assert!(one.check("k").allowed() && other.check("k").allowed());
    let mut first = Caller::new(one.acquire("k", 1));
    let mut second = Caller::new(two.acquire("k", 1));
    assert!(!two.check("k").allowed() && store.stats().waiting == 2);
    clock.advance(SECOND);
    assert!(first.poll().is_some() && second.poll().is_none());
    assert!(other.check("k").allowed(), "another scope is independent");
    two.change("min-interval 10s").unwrap();
    clock.advance(SECOND);
    assert!(second.poll().is_none());
    clock.advance(9 * SECOND);
    assert!(second.poll().is_some());
}

/// Setting the clock back makes waiters wait longer, setting it forward admits them.
#[test]
fn clock_steps_lose_no_waiter() {
    let (limiter, clock) = limiter("min-interval 10s");
    assert!(limiter.check("k").allowed());
    let start = limiter.now();
    let mut callers: Vec<Caller<'_>> = (0..3).map(|_| Caller::new(limiter.acquire("k", 1))).collect();
    clock.set(start.saturating_sub(Span::from(5 * SECOND)));
    clock.advance(14 * SECOND);
    assert!(callers[0].poll().is_none());
    clock.advance(SECOND);
    assert!(callers[0].poll().is_some());
    // An hour ahead at once: the missed capacity is lost, so one is admitted and the other waits
    // its interval.
    clock.set(start.saturating_add(Span::from(3_600 * SECOND)));
    assert!(callers[1].poll().is_some() && callers[2].poll().is_none());
    clock.advance(10 * SECOND);
    assert!(callers[2].poll().is_some());
}
