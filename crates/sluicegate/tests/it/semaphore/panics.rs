//! An observer that panics at any point: nothing is lost, and no other call is affected.

use super::caller::Caller;
use sluicegate::clock::{Alarm, Clock, ManualClock};
use sluicegate::semaphore::{AcquireLease, Grant, Semaphore};
use sluicegate::{Decision, Event, Observer, Time};
use std::future::Future as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Panics at the next lease that expires, once it is armed.
#[derive(Clone, Default)]
struct Panics(Arc<AtomicBool>);

impl Observer for Panics {
    fn decided(&self, _: &Decision) {}

    fn event(&self, _: &Event) {
        assert!(!self.0.swap(false, Ordering::Relaxed), "this observer panics");
    }
}

/// A clock whose alarms never ring: the polling task has to process due events itself.
#[derive(Clone, Debug, Default)]
struct NeverRings(ManualClock);

impl Clock for NeverRings {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn ring_at(&self, _: Time, alarm: Alarm) {
        std::mem::forget(alarm);
    }
}

/// A semaphore with one lease that expires in ten seconds.
fn semaphore(count: u64) -> (Semaphore, ManualClock, Panics) {
    let (clock, panics) = (NeverRings::default(), Panics::default());
    let limit = format!("concurrency {count} ttl=10s");
    let builder = Semaphore::builder(limit.as_str()).clock(clock.clone()).observer(panics.clone());
    let semaphore = builder.build().unwrap();
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    (semaphore, clock.0, panics)
}

impl Panics {
    /// Advances the clock. The next call that sees an expired lease panics.
    fn after(&self, clock: &ManualClock, seconds: u64) {
        clock.advance(Duration::from_secs(seconds));
        self.0.store(true, Ordering::Relaxed);
    }
}

fn poll(acquire: &mut Pin<Box<AcquireLease>>) -> Poll<Grant> {
    acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn panics_when_polled(acquire: &mut Pin<Box<AcquireLease>>) -> bool {
    catch_unwind(AssertUnwindSafe(|| poll(acquire))).is_err()
}

fn assert_nothing_is_left(semaphore: &Semaphore) {
    let stats = semaphore.stats();
    assert_eq!((stats.leases, stats.waiting, stats.keys), (0, 0, 0));
}

#[test]
fn a_lease_granted_immediately_is_released() {
    let (semaphore, clock, panics) = semaphore(1);
    panics.after(&clock, 10);
    assert!(panics_when_polled(&mut Box::pin(semaphore.acquire("k", 1))));
    assert_nothing_is_left(&semaphore);
}

#[test]
fn a_lease_granted_under_a_deadline_is_released() {
    let (semaphore, clock, panics) = semaphore(1);
    panics.after(&clock, 10);
    assert!(panics_when_polled(&mut Box::pin(semaphore.acquire_until("k", 1, Time::MAX))));
    assert_nothing_is_left(&semaphore);
}

#[test]
fn a_waiter_stays_enqueued() {
    for stays in [true, false] {
        let (semaphore, clock, panics) = semaphore(2);
        clock.advance(Duration::from_secs(5));
        let held = semaphore.try_acquire("k", 1).lease();
        panics.after(&clock, 5);
        // One of the two has expired, which is not enough.
        let mut waits = Box::pin(semaphore.acquire_until("k", 2, Time::MAX));
        assert!(panics_when_polled(&mut waits));
        assert_eq!(semaphore.stats().waiting, 1);
        if stays {
            drop(held);
            let Poll::Ready(grant) = poll(&mut waits) else { panic!("it was granted") };
            assert!(grant.allowed());
        } else {
            drop((waits, held));
        }
        assert_nothing_is_left(&semaphore);
    }
}

#[test]
fn a_lease_granted_by_a_poll_is_released() {
    let (semaphore, clock, panics) = semaphore(1);
    let mut waits = Box::pin(semaphore.acquire("k", 1));
    assert!(poll(&mut waits).is_pending());
    panics.after(&clock, 10);
    assert!(panics_when_polled(&mut waits));
    assert_nothing_is_left(&semaphore);
    let held = semaphore.try_acquire("k", 1).lease();
    let mut next = Caller::new(semaphore.acquire("k", 1));
    drop(waits);
    assert_eq!(semaphore.stats().waiting, 1, "no other waiter was removed");
    drop(held);
    assert!(next.poll() && next.allowed());
}

/// A second panic while the first unwinds would abort the process.
#[test]
fn a_lease_dropped_by_a_panic_is_released() {
    let (semaphore, clock, panics) = semaphore(2);
    clock.advance(Duration::from_secs(5));
    let lease = semaphore.try_acquire("k", 1).lease();
    panics.after(&clock, 5);
    let work = || {
        let _lease = lease;
        panic!("the work failed");
    };
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    assert_nothing_is_left(&semaphore);
}
