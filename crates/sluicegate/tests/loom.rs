//! The crate's synchronization under a model checker: every interleaving of two or three threads.
//!
//! ```text
//! cargo xtask loom
//! ```
//!
//! The models check what the code adds to its locks: the counts of keys and receipts that all
//! shards share, limits that change during calls, several locks at once, queues whose heads become
//! due while calls join and leave, and a semaphore's leases. Each model is small enough to be
//! explored completely.

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use loom::thread;
use sluicegate::clock::ManualClock;
use sluicegate::semaphore::{AcquireLease, Grant, Semaphore};
use sluicegate::wait::Acquire;
use sluicegate::{Limiter, check_all};
use sluicegate::{MemoryStore, OnFull};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn limiter(limits: &str, max_keys: usize) -> Limiter {
    let builder = Limiter::builder(limits).clock(ManualClock::default()).max_keys(max_keys);
    builder.on_full(OnFull::Deny).build().unwrap()
}

/// Three threads, one new key, a burst of two: two are allowed.
#[test]
fn a_burst_is_admitted_exactly_once() {
    for limits in ["token-bucket 1/h burst=2", "sliding-log 2/h"] {
        loom::model(move || {
            let limiter = limiter(limits, 1);
            let call = |limiter: Limiter| thread::spawn(move || u32::from(limiter.check("k").allowed()));
            let others = [call(limiter.clone()), call(limiter.clone())];
            let own = u32::from(limiter.check("k").allowed());
            let allowed: u32 = others.into_iter().map(|other| other.join().unwrap()).sum::<u32>() + own;
            assert_eq!(allowed, 2);
            assert_eq!(limiter.stats().keys, 1);
        });
    }
}

/// Two new keys and room for one: never two stored, never none. Of four keys in three shards some
/// two are in different ones.
#[test]
fn max_keys_is_shared_by_all_shards() {
    for (left, right) in [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")] {
        loom::model(move || {
            let limiter = limiter("fixed-window 5/h", 3);
            assert!(limiter.check("old").allowed() && limiter.check("older").allowed());
            let other = limiter.clone();
            let other = thread::spawn(move || other.check(left).allowed());
            let own = limiter.check(right).allowed();
            assert!(own ^ other.join().unwrap());
            assert_eq!(limiter.stats().keys, 3);
        });
    }
}

/// Two limiters named in opposite orders: no deadlock, and both are charged the same.
#[test]
fn check_all_is_atomic_in_any_order() {
    loom::model(|| {
        let (left, right) = (limiter("fixed-window 1/h", 1), limiter("token-bucket 1/h burst=5", 1));
        let (other_left, other_right) = (left.clone(), right.clone());
        let other = thread::spawn(move || {
            check_all(&[other_right.call("k", 1), other_left.call("k", 1)]).unwrap().allowed()
        });
        let own = check_all(&[left.call("k", 1), right.call("k", 1)]).unwrap().allowed();
        assert!(own ^ other.join().unwrap());
        assert_eq!((left.peek("k", 0).remaining(), right.peek("k", 0).remaining()), (0, 4));
    });
}

/// A change of limits during a key's first call: afterwards the new limit applies in any case.
#[test]
fn a_change_reaches_every_shard() {
    loom::model(|| {
        let limiter = limiter("fixed-window 5/h", 1);
        let other = limiter.clone();
        let other = thread::spawn(move || other.check_cost("k", 2).allowed());
        limiter.change("fixed-window 9/h").unwrap();
        assert!(other.join().unwrap());
        let decision = limiter.check("k");
        assert_eq!((decision.limit(), decision.remaining()), (9, 6));
    });
}

/// Versions restart during a call: the usage is neither lost nor converted twice.
#[test]
fn versions_restart_under_one_lock() {
    loom::model(|| {
        // Converted twice, usage at one rate would become more or less at another.
        let limiter = limiter("token-bucket 1/h burst=60", 1);
        assert!(limiter.check("k").allowed());
        let other = limiter.clone();
        let other = thread::spawn(move || other.check_cost("k", 2).allowed());
        for count in [20, 3, 40] {
            limiter.change(format!("token-bucket {count}/h burst=60")).unwrap();
        }
        assert!(other.join().unwrap());
        assert_eq!(limiter.check("k").remaining(), 56);
    });
}

/// The tags of unused limits are reused during a call: the key is decided under its own limit
/// throughout.
#[test]
fn a_limit_in_use_keeps_its_tag() {
    loom::model(|| {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().clock(clock).max_keys(3).build().unwrap();
        let limiter = |limit: &str, scope: u32| Limiter::builder(limit).in_store(&store, scope).build();
        let kept = limiter("fixed-window 5/h", 0).unwrap();
        let other = kept.clone();
        let other = thread::spawn(move || other.check_cost("k", 2).remaining());
        // Four tags, all but one of which are free again when the fifth limit arrives.
        for scope in 1..=4 {
            let brief = limiter(&format!("fixed-window {}/h", 10 + scope), scope).unwrap();
            assert_eq!(brief.peek("k", 0).remaining(), u64::from(10 + scope));
        }
        assert_eq!(other.join().unwrap(), 3);
        assert_eq!(kept.check("k").remaining(), 2);
    });
}

/// One receipt for two threads: one of them gets it, and it is free again after the cancel.
#[test]
fn receipts_are_bounded() {
    loom::model(|| {
        let builder = Limiter::builder("fixed-window 9/h").clock(ManualClock::default()).max_keys(1);
        let limiter = builder.max_receipts(1).build().unwrap();
        let other = limiter.clone();
        let reserve = |limiter: &Limiter| limiter.reserve("k", 1, Duration::ZERO).ok()?.keep();
        let other = thread::spawn(move || other.reserve("k", 1, Duration::ZERO).ok()?.keep());
        let (own, other) = (reserve(&limiter), other.join().unwrap());
        assert!(own.is_some() ^ other.is_some());
        assert!(own.or(other).is_some_and(|receipt| limiter.cancel(&receipt)));
        assert!(reserve(&limiter).is_some());
        assert_eq!(limiter.peek("k", 0).remaining(), 8);
    });
}

/// Counts wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls once. Returns `true` if the call is done.
fn poll(acquire: &mut Acquire<'_>, woken: &Arc<Woken>) -> bool {
    let waker = Waker::from(Arc::clone(woken));
    matches!(Pin::new(acquire).poll(&mut Context::from_waker(&waker)), Poll::Ready(acquired) if acquired.allowed())
}

fn drained(limits: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limits).clock(clock.clone()).max_keys(1).build().unwrap(), clock)
}

/// A call becomes due while it is enqueued: it is either admitted immediately, or woken exactly
/// once.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let (limiter, clock) = drained("min-interval 1s");
        assert!(limiter.check("k").allowed());
        let time = thread::spawn(move || clock.advance(Duration::from_secs(1)));
        let woken = Arc::<Woken>::default();
        let mut acquire = limiter.acquire("k", 1);
        let at_once = poll(&mut acquire, &woken);
        time.join().unwrap();
        assert_eq!(woken.0.load(Ordering::SeqCst), usize::from(!at_once));
        assert!(at_once || poll(&mut acquire, &woken));
    });
}

/// The head is dropped while it becomes due: the next is admitted nonetheless, and nothing is lost.
#[test]
fn a_waiter_dropped_while_woken_admits_the_next() {
    loom::model(|| {
        let (limiter, clock) = drained("token-bucket 1/s burst=1");
        assert!(limiter.check("k").allowed());
        let (first_woken, next_woken) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        let (mut first, mut next) = (limiter.acquire("k", 1), limiter.acquire("k", 1));
        assert!(!poll(&mut first, &first_woken) && !poll(&mut next, &next_woken));
        let time = thread::spawn(move || clock.advance(Duration::from_secs(1)));
        drop(first);
        time.join().unwrap();
        assert_eq!(next_woken.0.load(Ordering::SeqCst), 1);
        assert!(poll(&mut next, &next_woken));
        assert_eq!((limiter.stats().waiting, limiter.peek("k", 0).remaining()), (0, 0));
    });
}

/// A check and a waiter compete for the last unit: one gets it, and the waiter is not forgotten.
#[test]
fn a_check_and_a_waiter_do_not_share_a_unit() {
    loom::model(|| {
        let (limiter, clock) = drained("token-bucket 1/s burst=1");
        let other = limiter.clone();
        let other = thread::spawn(move || other.check("k").allowed());
        let woken = Arc::<Woken>::default();
        let mut acquire = limiter.acquire("k", 1);
        let at_once = poll(&mut acquire, &woken);
        assert!(at_once ^ other.join().unwrap());
        if !at_once {
            clock.advance(Duration::from_secs(1));
            assert!(poll(&mut acquire, &woken));
        }
    });
}

/// The grant, if there is one.
fn granted(acquire: &mut AcquireLease, woken: &Arc<Woken>) -> Option<Grant> {
    let waker = Waker::from(Arc::clone(woken));
    match Pin::new(acquire).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(grant) => Some(grant),
        Poll::Pending => None,
    }
}

/// Three threads and two permits: never three in progress, and all permits are free at the end.
#[test]
fn the_limit_is_never_exceeded() {
    loom::model(|| {
        let semaphore = Semaphore::builder("concurrency 2").clock(ManualClock::default()).build().unwrap();
        let at_work = Arc::new(AtomicUsize::new(0));
        let work = |semaphore: Semaphore, at_work: Arc<AtomicUsize>| {
            if let Some(lease) = semaphore.try_acquire("k", 1).lease() {
                assert!(at_work.fetch_add(1, Ordering::SeqCst) < 2);
                at_work.fetch_sub(1, Ordering::SeqCst);
                drop(lease);
            }
        };
        let others: [_; 2] = std::array::from_fn(|_| {
            let (semaphore, at_work) = (semaphore.clone(), Arc::clone(&at_work));
            thread::spawn(move || work(semaphore, at_work))
        });
        work(semaphore.clone(), at_work);
        for other in others {
            other.join().unwrap();
        }
        assert!(semaphore.try_acquire("k", 2).allowed());
    });
}

/// A lease is released while another call waits for it: that is either granted immediately, or
/// woken exactly once.
#[test]
fn no_released_lease_is_lost() {
    loom::model(|| {
        let semaphore = Semaphore::builder("concurrency 1").clock(ManualClock::default()).build().unwrap();
        let lease = semaphore.try_acquire("k", 1).lease();
        let other = thread::spawn(move || drop(lease));
        let woken = Arc::<Woken>::default();
        let mut acquire = semaphore.acquire("k", 1);
        let at_once = granted(&mut acquire, &woken);
        other.join().unwrap();
        assert_eq!(woken.0.load(Ordering::SeqCst), usize::from(at_once.is_none()));
        assert!(at_once.or_else(|| granted(&mut acquire, &woken)).is_some_and(|grant| grant.allowed()));
        assert_eq!((semaphore.stats().leases, semaphore.stats().waiting), (0, 0));
    });
}

/// The head is dropped while it is granted a lease: the next gets it, and nothing is lost.
#[test]
fn an_undelivered_lease_goes_to_the_next_waiter() {
    loom::model(|| {
        let semaphore = Semaphore::builder("concurrency 1").clock(ManualClock::default()).build().unwrap();
        let lease = semaphore.try_acquire("k", 1).lease();
        let (first_woken, next_woken) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        let (mut first, mut next) = (semaphore.acquire("k", 1), semaphore.acquire("k", 1));
        assert!(granted(&mut first, &first_woken).is_none() && granted(&mut next, &next_woken).is_none());
        let other = thread::spawn(move || drop(lease));
        drop(first);
        other.join().unwrap();
        assert_eq!(next_woken.0.load(Ordering::SeqCst), 1);
        assert!(granted(&mut next, &next_woken).is_some_and(|grant| grant.allowed()));
        assert!(semaphore.try_acquire("k", 1).allowed());
    });
}

/// Two keys and capacity for one lease: never two held, never none, whichever shards the keys are
/// in.
#[test]
fn max_leases_is_shared_by_all_keys() {
    for (left, right) in [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")] {
        loom::model(move || {
            let builder = Semaphore::builder("concurrency 1").clock(ManualClock::default());
            let semaphore = builder.max_leases(1).build().unwrap();
            let other = semaphore.clone();
            let other = thread::spawn(move || other.try_acquire(left, 1).lease());
            let own = semaphore.try_acquire(right, 1).lease();
            assert!(own.is_some() ^ other.join().unwrap().is_some());
            drop(own);
            assert!(semaphore.try_acquire(left, 1).allowed());
        });
    }
}

/// A lease is released just as it expires: its waiter is woken once, and the permit is freed once.
#[test]
fn a_lease_released_as_it_expires_is_freed_once() {
    loom::model(|| {
        let clock = ManualClock::default();
        let semaphore = Semaphore::builder("concurrency 1 ttl=1s").clock(clock.clone()).build().unwrap();
        let lease = semaphore.try_acquire("k", 1).lease();
        let (first_woken, next_woken) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        let (mut first, mut next) = (semaphore.acquire("k", 1), semaphore.acquire("k", 1));
        assert!(granted(&mut first, &first_woken).is_none() && granted(&mut next, &next_woken).is_none());
        let time = thread::spawn(move || clock.advance(Duration::from_secs(1)));
        drop(lease);
        time.join().unwrap();
        assert_eq!(first_woken.0.load(Ordering::SeqCst), 1);
        let grant = granted(&mut first, &first_woken).unwrap();
        assert!(grant.allowed());
        // If it was granted before the clock advanced, it may have expired by now too.
        let next_waits = granted(&mut next, &next_woken).is_none();
        assert_eq!(next_waits, next_woken.0.load(Ordering::SeqCst) == 0);
        drop((grant, first, next));
        assert_eq!((semaphore.stats().leases, semaphore.stats().waiting), (0, 0));
        assert!(semaphore.try_acquire("k", 1).allowed());
    });
}

/// A waiter reaches its deadline just as its lease is granted, or as it is dropped: it gets the
/// lease, or is denied and the permit is free.
#[test]
fn a_lease_granted_at_the_deadline_is_not_lost() {
    for leaves in [false, true] {
        loom::model(move || {
            let clock = ManualClock::default();
            let semaphore = Semaphore::builder("concurrency 1").clock(clock.clone()).build().unwrap();
            let lease = semaphore.try_acquire("k", 1).lease();
            let woken = Arc::<Woken>::default();
            let mut acquire = semaphore.acquire_within("k", 1, Duration::from_secs(1));
            assert!(granted(&mut acquire, &woken).is_none());
            let time = thread::spawn(move || clock.advance(Duration::from_secs(1)));
            if leaves {
                drop(acquire);
                drop(lease);
                time.join().unwrap();
            } else {
                drop(lease);
                time.join().unwrap();
                assert_eq!(woken.0.load(Ordering::SeqCst), 1);
                let grant = granted(&mut acquire, &woken).unwrap();
                assert_eq!(semaphore.stats().leases, usize::from(grant.allowed()));
            }
            assert_eq!((semaphore.stats().leases, semaphore.stats().waiting), (0, 0));
            assert!(semaphore.try_acquire("k", 1).allowed());
        });
    }
}
