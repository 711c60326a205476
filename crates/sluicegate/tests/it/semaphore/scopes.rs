//! Semaphores that share a pool.

use super::caller::Caller;
use sluicegate::BuildError;
use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate::semaphore::{LeasePool, Semaphore};
use sluicegate::wait::Denial;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn room(max_leases: usize) -> (LeasePool, ManualClock) {
    let clock = ManualClock::default();
    (LeasePool::builder().max_leases(max_leases).clock(clock.clone()).build().unwrap(), clock)
}

fn remaining(semaphore: &Semaphore) -> u64 {
    semaphore.peek("acme", 1).remaining()
}

#[test]
fn semaphores_share_leases_within_a_scope() {
    let (room, clock) = room(100);
    let few = room.scope("exports").semaphore("concurrency 2 ttl=10s").unwrap();
    let many = room.scope("exports").semaphore("concurrency 5 ttl=30s").unwrap();
    let other = room.scope("imports").semaphore("concurrency 2 ttl=10s").unwrap();
    let lease = few.try_acquire("acme", 2).lease().unwrap();
    assert_eq!((remaining(&few), remaining(&many), remaining(&other)), (0, 3, 2));
    let id = lease.id();
    assert!(!other.renew("acme", &id) && !other.release("acme", &id), "it belongs to another scope");
    assert!(many.renew("acme", &id), "by the ttl of the renewing semaphore");
    clock.advance(Duration::from_secs(20));
    assert_eq!(remaining(&few), 0);
    assert!(lease.renew(), "by the limit last used for the key");
    clock.advance(Duration::from_secs(10));
    assert_eq!((remaining(&few), lease.renew()), (2, false));
}

#[test]
fn the_pool_bounds_all_scopes_together() {
    let (room, clock) = room(2);
    let exports = room.scope("exports").semaphore("concurrency 5 ttl=10s").unwrap();
    let imports = room.scope("imports").semaphore("concurrency 7 ttl=60s").unwrap();
    let held = [exports.try_acquire("acme", 1).lease(), imports.try_acquire("acme", 1).lease()];
    let full = imports.try_acquire("other", 1);
    assert_eq!((full.denial(), full.decision().limit()), (Some(Denial::NoRoom), 7));
    clock.advance(Duration::from_secs(10));
    assert!(imports.try_acquire("other", 1).allowed());
    drop(held);
}

#[test]
fn expired_leases_of_idle_keys_can_be_cleared() {
    let (room, clock) = room(1_000);
    let scope = room.scope("exports");
    let exports = scope.semaphore("concurrency 1 ttl=10s").unwrap();
    for key in 0..500_u32 {
        exports.try_acquire(key, 1).lease().unwrap().keep();
    }
    clock.advance(Duration::from_secs(10));
    assert_eq!((scope.stats().leases, scope.stats().expired), (500, 0), "not noticed yet");
    room.clear_expired(clock.now());
    assert_eq!((scope.stats().leases, scope.stats().expired), (0, 500));
}

#[test]
fn scopes_can_be_counted_together() {
    let (room, clock) = room(100);
    let exports = room.scope("exports");
    let together = room.scope("callers");
    let [one, two] = ["a", "b"].map(|name| together.counting(name));
    let limits = [exports.semaphore("concurrency 3 ttl=10s"), one.semaphore("concurrency 1 ttl=30s")];
    let [first, second] = limits.map(Result::unwrap);
    let third = two.semaphore("concurrency 1 ttl=30s").unwrap();
    for _ in 0..3 {
        first.try_acquire("acme", 1).lease().unwrap().keep();
    }
    let leases = [&second, &third].map(|semaphore| semaphore.try_acquire("acme", 1).lease().unwrap());
    assert_eq!((exports.stats().leases, together.stats().leases, room.stats().leases), (3, 2, 5));
    first.reset("acme");
    drop(leases);
    assert_eq!((exports.stats().leases, together.stats().leases), (0, 0));
    first.try_acquire("acme", 1).lease().unwrap().keep();
    clock.advance(Duration::from_secs(10));
    assert_eq!(remaining(&first), 3);
    assert_eq!((exports.stats().leases, exports.stats().expired, together.stats().expired), (0, 1, 0));
    // Only a lease holds the scope now.
    first.try_acquire("acme", 1).lease().unwrap().keep();
    drop((first, exports));
    assert_eq!(room.scope("exports").stats().leases, 1);
}

#[test]
fn waiters_follow_the_limit_last_used_for_their_key() {
    let (room, _) = room(100);
    let scope = room.scope("exports");
    let one = scope.semaphore("concurrency 1 ttl=60s").unwrap();
    let two = scope.semaphore("concurrency 2 ttl=60s").unwrap();
    let _held = one.try_acquire("acme", 1).lease().unwrap();
    let mut waits = pin!(one.acquire("acme", 1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    let mut elsewhere =
        pin!(room.scope("imports").semaphore("concurrency 1 ttl=60s").unwrap().acquire("acme", 1));
    assert!(elsewhere.as_mut().poll(&mut context).is_ready(), "another scope's line");
    assert_eq!(scope.stats().waiting, 1);
    assert_eq!(two.peek("acme", 0).limit(), 2);
    let Poll::Ready(grant) = waits.poll(&mut context) else { panic!("two fit") };
    assert!(grant.allowed() && scope.stats().waiting == 0);
    assert_eq!(one.change("concurrency 9 ttl=1s"), Err(BuildError::ScopedSemaphore));
}

/// A reloaded rule is another semaphore of the same scope: its limit applies to the waiters of
/// every key that it is used for.
#[test]
fn release_and_reset_apply_the_callers_limit() {
    for returns in [true, false] {
        let (room, _) = room(100);
        let scope = room.scope("exports");
        let old = scope.semaphore("concurrency 1 ttl=60s").unwrap();
        let id = old.try_acquire("acme", 1).lease().unwrap().keep();
        let mut callers: Vec<Caller> = (0..3).map(|_| Caller::new(old.acquire("acme", 1))).collect();
        let new = scope.semaphore("concurrency 2 ttl=60s").unwrap();
        if returns {
            assert!(new.release("acme", &id));
        } else {
            new.reset("acme");
        }
        assert_eq!(callers.iter_mut().map(Caller::poll).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!((scope.stats().leases, scope.stats().waiting), (2, 1));
    }
}

#[test]
fn a_lower_limit_denies_waiters_that_can_never_fit() {
    let (room, _) = room(100);
    let scope = room.scope("exports");
    let old = scope.semaphore("concurrency 3 ttl=60s").unwrap();
    let held = old.try_acquire("acme", 3).lease();
    let mut callers: Vec<Caller> =
        [1, 3, 1, 2].into_iter().map(|cost| Caller::new(old.acquire("acme", cost))).collect();
    let new = scope.semaphore("concurrency 1 ttl=60s").unwrap();
    assert_eq!(new.peek("acme", 0).limit(), 1);
    let refused: Vec<_> = callers.iter_mut().map(|caller| caller.poll().then(|| caller.denial())).collect();
    let never = Some(Some(Denial::Never));
    assert_eq!(refused, [None, never, None, never]);
    drop(held);
    assert!(callers[0].poll() && callers[0].allowed() && !callers[2].poll());
}

/// Two scopes of one name, one of which is counted with others: a key is counted for the scope that
/// used it last.
#[test]
fn a_key_is_counted_for_one_scope_at_a_time() {
    let (room, _) = room(100);
    let (together, alone) = (room.scope("a"), room.scope("b"));
    let first = together.counting("b").semaphore("concurrency 2 ttl=10s").unwrap();
    let second = alone.semaphore("concurrency 2 ttl=10s").unwrap();
    let counts = || [&together, &alone].map(|scope| (scope.stats().leases, scope.stats().waiting));
    let leases = [first.try_acquire("acme", 1).lease(), first.try_acquire("acme", 1).lease()];
    let waits = Caller::new(first.acquire("acme", 1));
    assert_eq!(counts(), [(2, 1), (0, 0)]);
    assert_eq!(remaining(&second), 0);
    assert_eq!(counts(), [(0, 0), (2, 1)]);
    drop(waits);
    assert_eq!(remaining(&first), 0);
    drop(leases);
    assert_eq!(counts(), [(0, 0), (0, 0)]);
}

/// However a lease or a wait ends, its part of the scope's maximum is free again.
#[test]
fn a_scope_has_a_maximum_of_its_own() {
    let (room, clock) = room(100);
    let scope = room.scope("exports");
    scope.set_max_leases(2);
    let exports = scope.semaphore("concurrency 1 ttl=10s").unwrap();
    let imports = room.scope("imports").semaphore("concurrency 1 ttl=10s").unwrap();
    let within = Duration::from_secs(60);
    let is_full = || {
        let full = exports.try_acquire("another", 1).denial() == Some(Denial::NoRoom);
        assert_eq!(Caller::new(exports.acquire("another", 1)).denial() == Some(Denial::NoRoom), full);
        assert!(imports.try_acquire("acme", 1).allowed(), "another scope has room");
        full
    };
    for _ in 0..3 {
        let leases = ["a", "b"].map(|key| exports.try_acquire(key, 1).lease());
        assert!(is_full());
        drop(leases);
        assert!(!is_full(), "released");
        let _ = ["a", "b"].map(|key| exports.try_acquire(key, 1).lease().unwrap().keep());
        clock.advance(Duration::from_secs(10));
        assert!(!is_full(), "expired");
        let held = exports.try_acquire("a", 1).lease();
        let waiter = Caller::new(exports.acquire_within("a", 1, within));
        assert!(is_full(), "a waiter takes room");
        drop(waiter);
        assert!(!is_full(), "cancelled");
        let mut waiter = Caller::new(exports.acquire_within("a", 1, Duration::from_secs(1)));
        clock.advance(Duration::from_secs(1));
        assert!(waiter.poll() && !is_full(), "timed out");
        let mut waiter = Caller::new(exports.acquire_within("a", 1, within));
        drop(held);
        assert!(waiter.poll() && !is_full(), "granted: one lease");
        let _kept = exports.try_acquire("b", 1).lease().unwrap().keep();
        exports.reset("b");
        assert!(!is_full(), "reset");
        drop(waiter);
    }
    scope.set_max_leases(0);
    assert!(is_full());
}
