//! Dropping a future or a lease at any point loses and leaks nothing.

use super::caller::Caller;
use super::semaphore;
use std::time::Duration;

/// Trap 1 (thomhurst/Kevlar#15, and Go): a head, middle or tail that leaves, before and after it is
/// granted.
#[test]
fn a_dropped_waiter_leaves_no_trace() {
    for leaves in 0..3 {
        let (semaphore, _) = semaphore("concurrency 1");
        let lease = semaphore.try_acquire("k", 1).lease();
        let mut callers: Vec<Caller> = (0..3).map(|_| Caller::new(semaphore.acquire("k", 1))).collect();
        drop(callers.remove(leaves));
        drop(lease);
        for left in (0..2).rev() {
            let mut first = callers.remove(0);
            assert!(first.poll() && first.allowed() && first.woken() == 1, "{leaves} left");
            assert!(callers.iter_mut().all(|caller| !caller.poll()));
            assert_eq!(semaphore.stats().waiting, left);
        }
        assert!(semaphore.try_acquire("k", 1).allowed());
        assert_eq!(semaphore.stats().keys, 0);
    }
}

#[test]
fn an_undelivered_lease_goes_to_the_next_waiter() {
    for limit in ["concurrency 1", "concurrency 1 ttl=30s"] {
        let (semaphore, _) = semaphore(limit);
        let lease = semaphore.try_acquire("k", 1).lease();
        let (first, mut next) =
            (Caller::new(semaphore.acquire("k", 1)), Caller::new(semaphore.acquire("k", 1)));
        drop(lease);
        assert_eq!((first.woken(), next.woken()), (1, 0));
        drop(first);
        assert_eq!(next.woken(), 1);
        assert!(next.poll() && next.allowed());
        drop(next);
        assert_eq!((semaphore.stats().leases, semaphore.stats().keys, semaphore.stats().waiting), (0, 0, 0));
    }
}

#[test]
fn dropping_a_large_head_admits_smaller_ones() {
    let (semaphore, _) = semaphore("concurrency 3");
    let _lease = semaphore.try_acquire("k", 1).lease();
    let large = Caller::new(semaphore.acquire("k", 3));
    let mut small: Vec<Caller> = (0..3).map(|_| Caller::new(semaphore.acquire("k", 1))).collect();
    drop(large);
    let went: Vec<bool> = small.iter_mut().map(Caller::poll).collect();
    assert_eq!(went, [true, true, false]);
}

#[test]
fn an_unpolled_future_holds_nothing() {
    let (semaphore, _) = semaphore("concurrency 1");
    let idle = semaphore.acquire("k", 1);
    assert!(semaphore.try_acquire("k", 1).allowed());
    drop(idle);
    assert_eq!(semaphore.stats().allowed, 1);
}

#[test]
fn a_lease_that_expires_undelivered_goes_to_the_next() {
    let (semaphore, clock) = semaphore("concurrency 1 ttl=30s");
    let lease = semaphore.try_acquire("k", 1).lease();
    let (first, mut next) = (Caller::new(semaphore.acquire("k", 1)), Caller::new(semaphore.acquire("k", 1)));
    drop(lease);
    clock.advance(Duration::from_secs(30));
    assert!(next.woken() == 1 && next.poll() && next.allowed());
    drop(first);
    assert!(!semaphore.try_acquire("k", 1).allowed(), "the next waiter holds the permit");
}

#[test]
fn a_reset_or_change_admits_all_that_fit() {
    let (semaphore, _) = semaphore("concurrency 2");
    let old = semaphore.try_acquire("k", 2).lease();
    let mut callers: Vec<Caller> = (0..5).map(|_| Caller::new(semaphore.acquire("k", 1))).collect();
    let went = |callers: &mut Vec<Caller>| {
        callers.iter_mut().map(|caller| usize::from(caller.poll())).sum::<usize>()
    };
    semaphore.reset("k");
    assert_eq!(went(&mut callers), 2);
    drop(old);
    assert_eq!(went(&mut callers), 2, "leases from before the reset release nothing");
    semaphore.change("concurrency 4").unwrap();
    assert_eq!(went(&mut callers), 4);
    semaphore.change("concurrency 1").unwrap();
    drop(callers.drain(..3));
    assert_eq!(went(&mut callers), 1, "one is held, and one more fits");
    callers.remove(0);
    assert_eq!(went(&mut callers), 1);
}

#[test]
fn a_lower_limit_denies_waiters_that_can_never_fit() {
    let (semaphore, _) = semaphore("concurrency 3");
    let lease = semaphore.try_acquire("k", 3).lease();
    let mut callers: Vec<Caller> =
        [1, 3, 1, 2].into_iter().map(|cost| Caller::new(semaphore.acquire("k", cost))).collect();
    semaphore.change("concurrency 1").unwrap();
    let refused: Vec<_> = callers.iter_mut().map(|caller| caller.poll() && !caller.allowed()).collect();
    assert_eq!(refused, [false, true, false, true]);
    assert_eq!(semaphore.stats().waiting, 2);
    drop(lease);
    assert!(callers[0].poll() && callers[0].allowed() && !callers[2].poll());
}

#[test]
fn a_release_by_id_admits_the_next() {
    let (semaphore, _) = semaphore("concurrency 1 ttl=30s");
    let id = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let mut waiting = Caller::new(semaphore.acquire("k", 1));
    assert!(semaphore.release("k", &id));
    assert!(waiting.poll() && waiting.allowed());
}
