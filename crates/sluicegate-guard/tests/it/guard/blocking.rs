//! Calls that block: on the caller's thread, and on one of their own.

use sluicegate_guard::breaker::State;
use sluicegate_guard::bulkhead::{Adapt, Bulkhead, CompletedCall};
use sluicegate_guard::guard::{Failure, Guard, GuardDenial};
use sluicegate_guard::{Denial, ManualClock, Outcome};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Waits until every thread has released its permit.
fn until_no_permit_is_held(guard: &Guard) {
    let began = Instant::now();
    while guard.bulkhead().unwrap().stats().in_use > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "a thread keeps its permit");
        std::thread::yield_now();
    }
}

/// Hystrix's SEMAPHORE isolation: the work goes on to its end, and then is too late.
#[test]
fn a_late_call_on_this_thread_counts_as_timed_out() {
    let clock = ManualClock::default();
    let builder =
        Guard::builder("g").timeout(10 * MS).breaker("breaker 100%/1calls min=1").bulkhead("bulkhead 1");
    let guard = builder.clock(clock.clone()).build().unwrap();
    assert_eq!(guard.call_blocking(|| Ok::<_, ()>(7)), Ok(7));
    let mut has_ended = false;
    let answer = guard.call_blocking(|| {
        clock.advance(10 * MS);
        has_ended = true;
        Ok::<_, ()>(7)
    });
    assert_eq!((answer, has_ended), (Err(Failure::TimedOut), true));
    assert_eq!((guard.breaker().unwrap().state(), guard.stats().timed_out), (State::Open, 1));
    let fell_back = guard.on_this_thread(|| Ok::<_, ()>(7)).fallback(|_| async { 1 }).blocking();
    assert_eq!(fell_back, Ok(1));
    let ignored = Guard::builder("g").build().unwrap();
    let ignored = ignored.on_this_thread(|| Err::<(), _>("bad")).classify(|_| Outcome::Ignored).blocking();
    assert_eq!(ignored, Err(Failure::Ignored("bad")));
}

/// The card has been charged: too late for the caller, but a second try would charge it twice.
#[test]
fn a_late_success_on_this_thread_is_not_retried() {
    let clock = ManualClock::default();
    let builder = Guard::builder("payments").timeout(10 * MS).retry("retry 2 budget=1000% backoff=0s");
    let guard = builder.clock(clock.clone()).build().unwrap();
    let calls = |result: Result<u8, &'static str>| {
        let mut calls = 0;
        let answer = guard.call_blocking(|| {
            calls += 1;
            clock.advance(10 * MS);
            result
        });
        assert_eq!(answer, Err(Failure::TimedOut));
        calls
    };
    assert_eq!(calls(Ok(7)), 1);
    assert_eq!(calls(Err("down")), 3, "a failed call may be retried");
    assert_eq!((guard.stats().timed_out, guard.stats().retried), (4, 2));
}

/// Hystrix's THREAD isolation: the caller continues, and the permit is held until the work has
/// ended.
#[test]
fn in_a_thread_the_timeout_is_real_and_threads_are_bounded() {
    let guard = Guard::builder("g").timeout(20 * MS).bulkhead("bulkhead 2").build().unwrap();
    let (end, ends) = mpsc::channel::<()>();
    let ends = Arc::new(Mutex::new(ends));
    let hang = move || {
        let _ = ends.lock().unwrap().recv();
        Ok::<u8, ()>(7)
    };
    for _ in 0..2 {
        assert_eq!(guard.call_in_thread(hang.clone()), Err(Failure::TimedOut));
    }
    // Both hang still, and there is no third thread.
    assert_eq!(guard.bulkhead().unwrap().stats().in_use, 2);
    let refused = Err(Failure::Denied(GuardDenial::Bulkhead(Denial::QueueFull)));
    assert_eq!(guard.call_in_thread(hang), refused);
    drop(end);
    until_no_permit_is_held(&guard);
    let slow = Guard::builder("g").timeout(Duration::from_secs(60)).bulkhead("bulkhead 1").build().unwrap();
    assert_eq!(slow.call_in_thread(|| Ok::<u8, ()>(7)), Ok(7));
    assert_eq!(slow.in_thread(|| Err::<u8, _>("down")).fallback(|_| async { 9 }).blocking(), Ok(9));
}

#[test]
fn a_panic_in_a_thread_propagates_to_the_caller() {
    let builder = Guard::builder("g").bulkhead("bulkhead 1").breaker("breaker 100%/1calls min=1");
    let guard = builder.build().unwrap();
    let call = || guard.call_in_thread(|| -> Result<u8, ()> { panic!("down") });
    let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"down"));
    assert_eq!(
        (guard.bulkhead().unwrap().stats().in_use, guard.breaker().unwrap().state()),
        (0, State::Open)
    );
}

#[test]
fn without_a_bulkhead_no_thread_is_started() {
    let guard = Guard::builder("g").build().unwrap();
    let answer = guard.call_in_thread(|| Ok::<u8, ()>(7));
    assert_eq!(answer, Err(Failure::Denied(GuardDenial::NoBulkhead)));
}

/// An async caller that drops the call does not free the permit of work in progress.
#[test]
fn a_thread_keeps_its_permit_after_the_caller_left() {
    let guard = Guard::builder("g").bulkhead("bulkhead 1").build().unwrap();
    let (end, ends) = mpsc::channel::<()>();
    let ends = Arc::new(Mutex::new(ends));
    let mut call = super::polling::Polled::new(guard.in_thread(move || {
        let _ = ends.lock().unwrap().recv();
        Ok::<u8, ()>(7)
    }));
    assert!(call.poll().is_none());
    drop(call);
    assert_eq!(guard.bulkhead().unwrap().stats().in_use, 1);
    drop(end);
    until_no_permit_is_held(&guard);
}

/// Only its clones panic when they are dropped: a thread has a clone of the call.
struct ClonesPanic {
    is_clone: bool,
}

impl Clone for ClonesPanic {
    fn clone(&self) -> Self {
        ClonesPanic { is_clone: true }
    }
}

impl Drop for ClonesPanic {
    fn drop(&mut self) {
        assert!(!self.is_clone, "dropped");
    }
}

/// Dropping a call's captures runs the caller's code: it must not leave the caller without a
/// result.
#[test]
fn a_panic_after_the_call_propagates_too() {
    let guard = Guard::builder("g").bulkhead("bulkhead 1").build().unwrap();
    let (tell, reported) = mpsc::channel();
    let caller = guard.clone();
    std::thread::spawn(move || {
        let held = ClonesPanic { is_clone: false };
        let call = move || {
            // All of it is captured, not only its field.
            let held = &held;
            Ok::<bool, ()>(held.is_clone)
        };
        let said = catch_unwind(AssertUnwindSafe(|| caller.call_in_thread(call)));
        let _ = tell.send(said.map_err(|panic| panic.downcast_ref::<&str>().copied()));
    });
    assert_eq!(reported.recv_timeout(Duration::from_secs(60)), Ok(Err(Some("dropped"))));
    assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
}

/// What an algorithm has seen.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Outcome>>>);

impl Adapt for Notes {
    fn after_call(&mut self, call: &CompletedCall) -> u32 {
        self.0.lock().unwrap().push(call.outcome);
        call.limit
    }
}

#[test]
fn an_algorithm_sees_calls_made_in_threads() {
    let notes = Notes::default();
    let bulkhead = Bulkhead::builder("bulkhead 1").adapt(notes.clone()).build().unwrap();
    let guard = Guard::builder("g").bulkhead(&bulkhead).build().unwrap();
    assert_eq!(guard.call_in_thread(|| Ok::<u8, ()>(7)), Ok(7));
    assert_eq!(guard.call_in_thread(|| Err::<u8, _>(())), Err(Failure::Failed(())));
    let panics = || -> Result<u8, ()> { panic!("down") };
    assert!(catch_unwind(AssertUnwindSafe(|| guard.call_in_thread(panics))).is_err());
    // This one panics before there is anything to poll.
    assert!(catch_unwind(AssertUnwindSafe(|| guard.call_blocking(panics))).is_err());
    let reported = [Outcome::Success, Outcome::Failure, Outcome::Failure, Outcome::Failure];
    assert_eq!(*notes.0.lock().unwrap(), reported);
}
