//! Wakers that panic, alarms that are lost, clocks that jump.

use super::caller::Caller;
use super::semaphore;
use crate::wall_clock::WallClock;
use sluicegate::clock::{Alarm, Clock, ManualClock};
use sluicegate::semaphore::Semaphore;
use sluicegate::wait::Denial;
use sluicegate::{Span, Time};
use std::future::Future as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("this waker panics");
    }
}

/// Calls the semaphore while it is woken or dropped, which would deadlock if a lock were held.
struct CallsBack(Semaphore);

impl Wake for CallsBack {
    fn wake(self: Arc<Self>) {
        let _ = (self.0.peek("k", 1), self.0.limit(), format!("{:?}", self.0));
        self.0.change("concurrency 2").unwrap();
    }
}

impl Drop for CallsBack {
    fn drop(&mut self) {
        let _ = self.0.peek("k", 1);
    }
}

#[test]
fn a_panicking_waker_does_not_affect_others() {
    let (semaphore, _) = semaphore("concurrency 2");
    let lease = semaphore.try_acquire("k", 2).lease();
    let mut bad = Box::pin(semaphore.acquire("k", 1));
    let waker = Waker::from(Arc::new(Panics));
    assert!(bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut good = Caller::new(semaphore.acquire("k", 1));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lease))).is_err());
    assert!(good.woken() == 1 && good.poll() && good.allowed());
    drop(bad);
    assert!(semaphore.try_acquire("k", 1).allowed(), "its permit was passed on");
}

#[test]
fn a_lease_dropped_by_a_panic_wakes_without_aborting() {
    let (semaphore, _) = semaphore("concurrency 1");
    let lease = semaphore.try_acquire("k", 1).lease();
    let mut bad = Box::pin(semaphore.acquire("k", 1));
    let waker = Waker::from(Arc::new(Panics));
    assert!(bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let work = || {
        let _lease = lease;
        panic!("the work failed");
    };
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    assert!(bad.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn wakers_run_and_are_dropped_without_the_lock() {
    let (semaphore, _) = semaphore("concurrency 1");
    let lease = semaphore.try_acquire("k", 1).lease();
    let asks = |acquire: &mut Pin<Box<sluicegate::semaphore::AcquireLease>>| {
        let waker = Waker::from(Arc::new(CallsBack(semaphore.clone())));
        acquire.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    };
    let (mut first, mut left) = (Box::pin(semaphore.acquire("k", 1)), Box::pin(semaphore.acquire("k", 1)));
    assert!(!asks(&mut first) && !asks(&mut left));
    assert!(!asks(&mut first), "another waker replaces the first, which is dropped");
    drop(left);
    drop(lease);
    assert!(asks(&mut first));
}

#[test]
fn a_change_wakes_without_the_lock() {
    let (semaphore, _) = semaphore("concurrency 1");
    let _lease = semaphore.try_acquire("k", 1).lease();
    let mut waiting = Box::pin(semaphore.acquire("k", 1));
    let waker = Waker::from(Arc::new(CallsBack(semaphore.clone())));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    semaphore.change("concurrency 3").unwrap();
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(semaphore.limit().to_string(), "concurrency 2", "the waker's change came last");
}

#[test]
fn a_panicking_waker_does_not_stop_a_change() {
    let (semaphore, _) = semaphore("concurrency 1");
    let keys = 0..200;
    let _leases: Vec<_> = keys.clone().map(|key| semaphore.try_acquire(key, 1).lease()).collect();
    let waker = Waker::from(Arc::new(Panics));
    let mut bad = Box::pin(semaphore.acquire(0, 1));
    assert!(bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let good: Vec<Caller> = keys.map(|key| Caller::new(semaphore.acquire(key, 1))).collect();
    assert!(catch_unwind(AssertUnwindSafe(|| semaphore.change("concurrency 3"))).is_err());
    assert!(good.iter().all(|caller| caller.woken() == 1));
}

/// A clock that drops its alarms, as when a runtime shuts down.
#[derive(Clone, Debug, Default)]
struct DropsAlarms {
    clock: ManualClock,
    alarms: Arc<Mutex<Vec<Alarm>>>,
}

impl Clock for DropsAlarms {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn ring_at(&self, _: Time, alarm: Alarm) {
        self.alarms.lock().unwrap().push(alarm);
    }
}

#[test]
fn waiters_replace_a_lost_alarm() {
    let clock = DropsAlarms::default();
    let semaphore = Semaphore::builder("concurrency 1 ttl=30s").clock(clock.clone()).build().unwrap();
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let mut waiting = Caller::new(semaphore.acquire("k", 1));
    let lost: Vec<Alarm> = clock.alarms.lock().unwrap().drain(..).collect();
    assert_eq!(lost.len(), 1);
    drop(lost);
    assert_eq!(waiting.woken(), 1);
    assert!(!waiting.poll());
    assert_eq!(clock.alarms.lock().unwrap().len(), 1);
    clock.clock.advance(Duration::from_secs(30));
    assert!(waiting.poll() && waiting.allowed(), "the polling task processes due events itself");
}

#[test]
fn a_clock_jump_past_a_deadline_denies_the_waiter() {
    let (semaphore, clock) = semaphore("concurrency 1 ttl=10s");
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let mut late = Caller::new(semaphore.acquire_within("k", 1, Duration::from_secs(15)));
    let mut endless = Caller::new(semaphore.acquire("k", 1));
    clock.set(semaphore.now().saturating_add(Span::from_micros(100_000_000)));
    assert!(late.poll() && !late.allowed());
    assert!(endless.poll() && endless.allowed());
}

#[test]
fn after_a_step_back_waiters_wait_the_step_longer() {
    let (semaphore, clock) = semaphore("concurrency 1 ttl=10s");
    let start = semaphore.now();
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let mut waiting = Caller::new(semaphore.acquire("k", 1));
    clock.set(start.saturating_sub(Span::from_micros(5_000_000)));
    assert!(!waiting.poll());
    clock.advance(Duration::from_micros(14_999_999));
    assert!(!waiting.poll());
    clock.advance(Duration::from_micros(1));
    assert!(waiting.poll() && waiting.allowed());
}

#[test]
fn after_an_hour_back_a_wait_only_restarts() {
    let wall = WallClock::new();
    let semaphore = Semaphore::builder("concurrency 1").clock(wall.clone()).build().unwrap();
    let held = semaphore.try_acquire("k", 1).lease();
    let mut waits = Caller::new(semaphore.acquire_within("k", 1, Duration::from_secs(1)));
    let mut patient = Caller::new(semaphore.acquire_within("k", 1, Duration::from_secs(7_200)));
    wall.elapsed.advance(Duration::from_millis(500));
    wall.set_back(Duration::from_secs(3_600));
    wall.elapsed.advance(Duration::from_millis(1_499));
    assert!(waits.waits() && !waits.poll());
    wall.elapsed.advance(Duration::from_millis(1));
    assert!(waits.poll() && waits.denial() == Some(Denial::TooLong));
    assert!(patient.waits());
    drop(held);
    assert!(patient.poll() && patient.allowed());
}
