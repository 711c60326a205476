//! The order of waiters.

use super::caller::Caller;
use super::semaphore;
use sluicegate::wait::{Denial, Priority};
use sluicegate::{RetryAfter, Span};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn waiters_are_served_in_order_and_woken_once() {
    let (semaphore, _) = semaphore("concurrency 1");
    let mut in_progress = semaphore.try_acquire("k", 1).lease();
    let mut callers: Vec<Caller> = (0..5).map(|_| Caller::new(semaphore.acquire("k", 1))).collect();
    assert_eq!(semaphore.stats().waiting, 5);
    while !callers.is_empty() {
        drop(in_progress.take());
        assert_eq!(callers.iter().map(Caller::woken).collect::<Vec<_>>(), {
            let mut woken = vec![0; callers.len()];
            woken[0] = 1;
            woken
        });
        let mut first = callers.remove(0);
        assert!(callers.iter_mut().all(|caller| !caller.poll()));
        assert!(first.poll() && first.allowed());
        in_progress = first.lease();
    }
    assert_eq!(semaphore.stats().waiting, 0);
}

#[test]
fn a_large_cost_is_not_overtaken() {
    let (semaphore, _) = semaphore("concurrency 4");
    let (two, one) = (semaphore.try_acquire("k", 2).lease(), semaphore.try_acquire("k", 1).lease());
    let mut large = Caller::new(semaphore.acquire("k", 4));
    let mut small = Caller::new(semaphore.acquire("k", 1));
    let denied = semaphore.try_acquire("k", 1);
    assert_eq!((denied.denial(), denied.decision().remaining()), (Some(Denial::TooLong), 0));
    assert!(!semaphore.peek("k", 1).allowed() && semaphore.peek("k", 0).allowed());
    drop(two);
    assert!(!large.poll() && !small.poll());
    drop(one);
    assert!(large.poll() && large.allowed() && !small.poll());
    drop(large);
    assert!(small.poll() && small.allowed());
    assert!(semaphore.try_acquire("k", 3).allowed(), "no call waits any more");
}

#[test]
fn a_higher_priority_goes_first() {
    let (semaphore, _) = semaphore("concurrency 2");
    let one = semaphore.try_acquire("k", 1).lease();
    let mut large = Caller::new(semaphore.acquire("k", 2).priority(Priority::Low));
    let high = Caller::new(semaphore.acquire("k", 1).priority(Priority::High));
    assert!(high.allowed() && high.woken() == 0, "it fits, and no call is before it");
    drop(one);
    assert!(!large.poll());
    let mut normal = Caller::new(semaphore.acquire("k", 2));
    drop(high);
    assert!(normal.poll() && normal.allowed() && !large.poll());
    drop(normal);
    assert!(large.poll() && large.allowed());
}

#[test]
fn a_denial_behind_waiters_reports_the_known_minimum() {
    let (semaphore, clock) = semaphore("concurrency 2 ttl=30s");
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    clock.advance(SECOND);
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let _waiting = Caller::new(semaphore.acquire("k", 1));
    let retry_after = semaphore.try_acquire("k", 1).decision().retry_after();
    assert_eq!(retry_after, Some(RetryAfter::After(Span::from_micros(30_000_000))), "when both have expired");
}

#[test]
fn the_head_is_granted_when_enough_leases_expire() {
    let (semaphore, clock) = semaphore("concurrency 3 ttl=30s");
    for _ in 0..3 {
        let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
        clock.advance(SECOND);
    }
    let mut two = Caller::new(semaphore.acquire("k", 2));
    clock.advance(Duration::from_micros(27_999_999));
    assert!(!two.poll() && two.woken() == 0);
    clock.advance(Duration::from_micros(1));
    assert_eq!(two.woken(), 1);
    assert!(two.poll() && two.allowed());
    assert_eq!(two.grant().waited(), 28 * SECOND);
    assert_eq!(semaphore.stats().expired, 2);
}

#[test]
fn a_renewed_lease_delays_the_head() {
    let (semaphore, clock) = semaphore("concurrency 1 ttl=30s");
    let lease = semaphore.try_acquire("k", 1).lease().unwrap();
    let mut waiting = Caller::new(semaphore.acquire("k", 1));
    clock.advance(20 * SECOND);
    assert!(lease.renew());
    clock.advance(29 * SECOND);
    assert!(!waiting.poll() && waiting.woken() == 0);
    clock.advance(SECOND);
    assert!(waiting.woken() == 1 && waiting.poll() && waiting.allowed());
    assert!(!lease.renew());
}

#[test]
fn a_waiter_at_its_deadline_is_denied_and_the_next_goes() {
    let (semaphore, clock) = semaphore("concurrency 3");
    let lease = semaphore.try_acquire("k", 2).lease();
    let mut large = Caller::new(semaphore.acquire_within("k", 2, 5 * SECOND));
    let mut small = Caller::new(semaphore.acquire("k", 1));
    clock.advance(Duration::from_micros(4_999_999));
    assert!(!large.poll());
    clock.advance(Duration::from_micros(1));
    assert_eq!((large.woken(), small.woken()), (1, 1));
    assert!(large.poll() && large.denial() == Some(Denial::TooLong));
    assert_eq!(large.grant().waited(), 5 * SECOND);
    assert!(small.poll() && small.allowed());
    drop(lease);
    let passed = semaphore.now().saturating_sub(Span::from_micros(1));
    let late = semaphore.acquire_until("k", 1, passed).blocking();
    assert_eq!(late.denial(), Some(Denial::TooLong), "its deadline had passed before the call");
    assert!(semaphore.acquire_until("k", 1, semaphore.now()).blocking().allowed());
}

#[test]
fn a_lease_that_expires_at_the_deadline_is_in_time() {
    let (semaphore, clock) = semaphore("concurrency 1 ttl=5s");
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let mut waiting = Caller::new(semaphore.acquire_within("k", 1, 5 * SECOND));
    clock.advance(5 * SECOND);
    assert!(waiting.poll() && waiting.allowed() && waiting.woken() == 1);
}

#[test]
fn a_grant_reports_its_wait_with_and_without_ttl() {
    for limit in ["concurrency 1", "concurrency 1 ttl=30s"] {
        let (semaphore, clock) = semaphore(limit);
        let lease = semaphore.try_acquire("k", 1).lease();
        let (mut first, mut next) =
            (Caller::new(semaphore.acquire("k", 1)), Caller::new(semaphore.acquire("k", 1)));
        clock.advance(Duration::from_secs(3));
        drop(lease);
        clock.advance(Duration::from_secs(4));
        assert!(first.poll());
        assert_eq!(
            first.grant().waited(),
            Duration::from_secs(3),
            "until it was granted, not until it polled"
        );
        drop(first);
        assert!(next.poll());
        assert_eq!(next.grant().waited(), Duration::from_secs(7));
    }
}

/// More leases have to expire than are examined to plan when the head is due.
#[test]
fn the_head_is_granted_in_time_behind_many_leases() {
    let (semaphore, clock) = semaphore("concurrency 10000 ttl=1h");
    for _ in 0..10_000 {
        let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
        clock.advance(Duration::from_millis(1));
    }
    let mut waiting = Caller::new(semaphore.acquire("k", 5_000));
    // The 5000th was acquired 4.999 s after the first, and 10 s have passed since.
    let until_expiry = 3_600_000_000 + 4_999_000 - 10_000_000;
    clock.advance(Duration::from_micros(until_expiry - 1));
    assert!(!waiting.poll() && waiting.woken() == 0);
    clock.advance(Duration::from_micros(1));
    assert!(waiting.woken() == 1 && waiting.poll() && waiting.allowed());
}
