//! Breakers and bulkheads under a model checker: every interleaving of two or three threads.
//!
//! ```text
//! cargo xtask loom
//! ```
//!
//! These models check what the lock-free paths add to the locks: a breaker that opens while calls
//! begin and end, keys that are evicted meanwhile, permits that are released while callers join and
//! leave the queue. Each model is small enough to

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use loom::thread;
use sluicegate_guard::breaker::{Breaker, State};
use sluicegate_guard::bulkhead::{AcquirePermit, Bulkhead, PermitGrant};
use sluicegate_guard::{KeyedBreakers, ManualClock};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// How often a waiter was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn breaker(rules: &str) -> (Breaker, ManualClock) {
    let clock = ManualClock::default();
    (Breaker::builder(rules).clock(clock.clone()).build().unwrap(), clock)
}

/// It opens while other threads are admitted without the lock: each was admitted before it opened,
/// and cannot close it.
#[test]
fn a_call_admitted_while_it_opens_changes_nothing() {
    loom::model(|| {
        let (breaker, _clock) = breaker("breaker 100%/1calls open=1s");
        let admitted = breaker.try_acquire().admitted().unwrap().into_owned();
        let other = thread::spawn(move || admitted.failure());
        if let Ok(admitted) = breaker.try_acquire().admitted() {
            admitted.success();
        }
        other.join().unwrap();
        assert_eq!((breaker.state(), breaker.stats().totals.opened), (State::Open, 1));
        assert!(!breaker.try_acquire().allowed());
    });
}

/// Three ask as an open breaker's time is over: as many pass as there are probes.
#[test]
fn exactly_the_configured_probes_are_admitted() {
    for probes in [1_usize, 2] {
        loom::model(move || {
            let (breaker, clock) = breaker(&format!("breaker 100%/1calls open=1s probes={probes}"));
            breaker.try_acquire().admitted().unwrap().failure();
            clock.advance(Duration::from_secs(1));
            let ask = |breaker: Breaker| thread::spawn(move || breaker.try_acquire().into_owned());
            let others = [ask(breaker.clone()), ask(breaker.clone())];
            let own = breaker.try_acquire();
            let others = others.map(|other| other.join().unwrap());
            let passed = others.iter().chain([&own]).filter(|admission| admission.allowed()).count();
            assert_eq!((passed, breaker.state()), (probes, State::HalfOpen));
        });
    }
}

/// A probe ends while other calls arrive: none is admitted beside it, and all are once it has
/// succeeded.
#[test]
fn no_call_is_admitted_beside_a_probe() {
    for goes_well in [true, false] {
        loom::model(move || {
            let (breaker, clock) = breaker("breaker 100%/1calls open=1s");
            breaker.try_acquire().admitted().unwrap().failure();
            clock.advance(Duration::from_secs(1));
            let probe = breaker.try_acquire().admitted().unwrap().into_owned();
            let other = thread::spawn(move || if goes_well { probe.success() } else { probe.failure() });
            let admission = breaker.try_acquire();
            if let Ok(admitted) = admission.admitted() {
                assert!(goes_well && !admitted.is_probe());
                admitted.success();
            }
            other.join().unwrap();
            assert_eq!(breaker.state(), if goes_well { State::Closed } else { State::Open });
            assert_eq!(breaker.try_acquire().allowed(), goes_well);
        });
    }
}

/// Rules are changed while a key comes in: it has the new ones.
#[test]
fn an_inserted_key_misses_no_change() {
    loom::model(|| {
        let hosts = KeyedBreakers::builder("breaker 50%/1calls").clock(ManualClock::default()).max_keys(1);
        let hosts = hosts.build().unwrap();
        let other = hosts.clone();
        let other = thread::spawn(move || other.get("k"));
        hosts.change("breaker 60%/1calls").unwrap();
        let made = other.join().unwrap();
        assert_eq!(made.config(), hosts.config());
        assert_eq!(hosts.get("k").config(), hosts.config());
    });
}

/// A key is removed while totals are read: its counts are neither missing nor doubled.
#[test]
fn totals_never_decrease_when_a_key_is_removed() {
    loom::model(|| {
        let hosts = KeyedBreakers::builder("breaker 50%/1calls").clock(ManualClock::default()).max_keys(1);
        let hosts = hosts.build().unwrap();
        hosts.try_acquire("k").admitted().unwrap().success();
        let other = hosts.clone();
        let other = thread::spawn(move || other.remove("k"));
        assert_eq!(hosts.stats().totals.successes, 1);
        other.join().unwrap();
        assert_eq!((hosts.stats().totals.successes, hosts.stats().keys), (1, 0));
    });
}

/// Two changes at once: one comes last, for the key as for the set.
#[test]
fn two_changes_of_all_breakers_do_not_mix() {
    loom::model(|| {
        let hosts = KeyedBreakers::builder("breaker 50%/1calls").clock(ManualClock::default()).max_keys(1);
        let hosts = hosts.build().unwrap();
        let key = hosts.get("k");
        let other = hosts.clone();
        let other = thread::spawn(move || other.change("breaker 60%/1calls").unwrap());
        hosts.change("breaker 70%/1calls").unwrap();
        other.join().unwrap();
        assert_eq!(key.config(), hosts.config());
    });
}

/// Polls once. The answer, if there is one.
fn poll_enter(enter: &mut AcquirePermit, woken: &Arc<Woken>) -> Option<PermitGrant> {
    let waker = Waker::from(Arc::clone(woken));
    match Pin::new(enter).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(entry) => Some(entry),
        Poll::Pending => None,
    }
}

fn bulkhead(text: &str) -> (Bulkhead, ManualClock) {
    let clock = ManualClock::default();
    (Bulkhead::builder(text).clock(clock.clone()).build().unwrap(), clock)
}

/// A permit is released while a call acquires one: it gets the permit at once, or is woken exactly
/// once.
#[test]
fn no_released_permit_is_missed() {
    loom::model(|| {
        let (bulkhead, _clock) = bulkhead("bulkhead 1 queue=1");
        let permit = bulkhead.try_acquire();
        let other = thread::spawn(move || drop(permit));
        let woken = Arc::<Woken>::default();
        let mut enter = bulkhead.acquire();
        let entry = poll_enter(&mut enter, &woken);
        other.join().unwrap();
        assert_eq!(woken.0.load(Ordering::SeqCst), usize::from(entry.is_none()));
        let entry = entry.or_else(|| poll_enter(&mut enter, &woken));
        assert!(entry.is_some_and(|entry| entry.allowed()));
        assert!(bulkhead.try_acquire().is_some());
    });
}

/// One thread releases its permit, one leaves the queue and one does not wait: the next waiter gets
/// the permit, and the limit holds.
#[test]
fn a_waiter_that_leaves_passes_its_permit_on() {
    loom::model(|| {
        let (bulkhead, _clock) = bulkhead("bulkhead 1 queue=2");
        let permit = bulkhead.try_acquire();
        let (first_woken, next_woken) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        let (mut first, mut next) = (bulkhead.acquire(), bulkhead.acquire());
        assert!(poll_enter(&mut first, &first_woken).is_none());
        assert!(poll_enter(&mut next, &next_woken).is_none());
        let other = thread::spawn(move || drop(permit));
        let third = bulkhead.clone();
        let third = thread::spawn(move || third.try_acquire().is_some());
        drop(first);
        other.join().unwrap();
        assert!(!third.join().unwrap(), "no call overtakes a waiter");
        assert_eq!(next_woken.0.load(Ordering::SeqCst), 1);
        assert!(poll_enter(&mut next, &next_woken).is_some_and(|entry| entry.allowed()));
        assert_eq!((bulkhead.stats().in_use, bulkhead.stats().waiting), (0, 0));
    });
}

/// A wait ends while its permit is released: either it is granted, or it is denied and the permit
/// is free. It is woken once in both cases.
#[test]
fn a_permit_granted_at_the_deadline_is_not_lost() {
    loom::model(|| {
        let (bulkhead, clock) = bulkhead("bulkhead 1 queue=1 wait=1s");
        let permit = bulkhead.try_acquire();
        let woken = Arc::<Woken>::default();
        let mut enter = bulkhead.acquire();
        assert!(poll_enter(&mut enter, &woken).is_none());
        let time = thread::spawn(move || clock.advance(Duration::from_secs(1)));
        drop(permit);
        time.join().unwrap();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        let entry = poll_enter(&mut enter, &woken).unwrap();
        assert_eq!(bulkhead.stats().in_use, u32::from(entry.allowed()));
        drop(entry);
        assert!(bulkhead.try_acquire().is_some());
    });
}

/// The limit moves while one comes in and another goes out: what is counted is who is in.
#[test]
fn a_changing_limit_miscounts_nothing() {
    loom::model(|| {
        let (bulkhead, _clock) = bulkhead("bulkhead 1 queue=1");
        let permit = bulkhead.try_acquire();
        let woken = Arc::<Woken>::default();
        let mut enter = bulkhead.acquire();
        assert!(poll_enter(&mut enter, &woken).is_none());
        let other = thread::spawn(move || drop(permit));
        bulkhead.set_limit(2);
        let third = bulkhead.try_acquire();
        other.join().unwrap();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(poll_enter(&mut enter, &woken).is_some_and(|entry| entry.allowed()));
        assert_eq!(bulkhead.stats().in_use, u32::from(third.is_some()));
    });
}
