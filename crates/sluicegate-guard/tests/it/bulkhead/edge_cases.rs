//! One thing at a time.

use super::support::Asker;
use sluicegate::clock::Alarm;
use sluicegate_guard::bulkhead::{Adapt, Bulkhead, CompletedCall};
use sluicegate_guard::{Clock, Denial, Event, ManualClock, Observer, Outcome, Priority, Span, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn bulkhead(text: &str) -> (Bulkhead, ManualClock) {
    let clock = ManualClock::default();
    (Bulkhead::builder(text).clock(clock.clone()).build().unwrap(), clock)
}

#[test]
fn without_a_queue_calls_are_denied_immediately() {
    let (bulkhead, _clock) = bulkhead("bulkhead 2");
    let (one, two) = (bulkhead.try_acquire(), bulkhead.try_acquire());
    assert!(one.is_some() && two.is_some() && bulkhead.try_acquire().is_none());
    assert_eq!(bulkhead.acquire().blocking().denial(), Some(Denial::QueueFull));
    drop(one);
    let third = bulkhead.acquire().blocking();
    assert!(third.allowed());
    let stats = bulkhead.stats();
    assert_eq!((stats.allowed, stats.denied, stats.in_use, stats.waiting, stats.limit), (3, 2, 2, 0, 2));
}

#[test]
fn the_queue_and_the_wait_are_bounded() {
    let (bulkhead, clock) = bulkhead("bulkhead 1 queue=2 wait=1s");
    let permit = bulkhead.try_acquire().unwrap();
    let (mut first, mut second) = (Asker::waiting(bulkhead.acquire()), Asker::waiting(bulkhead.acquire()));
    assert_eq!(bulkhead.acquire().blocking().denial(), Some(Denial::QueueFull));
    clock.advance(Duration::from_micros(999_999));
    assert_eq!((first.woken(), second.woken()), (0, 0));
    clock.advance(Duration::from_micros(1));
    assert_eq!((first.woken(), second.woken()), (1, 1));
    let denied = first.poll().unwrap();
    assert_eq!((denied.denial(), denied.waited()), (Some(Denial::TooLong), SECOND));
    // The permit comes too late for the other waiter too, though it has not polled yet.
    drop(permit);
    assert_eq!(second.poll().unwrap().denial(), Some(Denial::TooLong));
    assert!(bulkhead.try_acquire().is_some());
}

#[test]
fn a_permit_goes_to_the_first_waiter() {
    let (bulkhead, clock) = bulkhead("bulkhead 1 queue=9 wait=1min");
    let permit = bulkhead.try_acquire().unwrap();
    let mut low = Asker::waiting(bulkhead.acquire().priority(Priority::Low));
    let mut normal = [Asker::waiting(bulkhead.acquire()), Asker::waiting(bulkhead.acquire())];
    let mut high = Asker::waiting(bulkhead.acquire().priority(Priority::High));
    clock.advance(SECOND);
    drop(permit);
    assert!(bulkhead.try_acquire().is_none(), "no call overtakes a waiter");
    let entry = high.poll().unwrap();
    assert_eq!(entry.waited(), SECOND);
    drop(entry);
    let [first, second] = &mut normal;
    assert!(second.poll().is_none());
    let entry = first.poll().unwrap();
    assert!(low.poll().is_none() && entry.allowed());
    drop(entry);
    assert!(second.poll().is_some_and(|entry| entry.allowed()));
    assert!(low.poll().is_some_and(|entry| entry.allowed()));
    assert_eq!(bulkhead.stats().in_use, 0);
    for asker in [&low, first, second, &high] {
        assert_eq!(asker.woken(), 1);
    }
}

/// Waiting, granted, denied, and never polled.
#[test]
fn a_dropped_waiter_leaves_nothing_behind() {
    let (bulkhead, clock) = bulkhead("bulkhead 1 queue=9 wait=1min");
    drop(bulkhead.acquire());
    let permit = bulkhead.try_acquire().unwrap();
    let waits = Asker::waiting(bulkhead.acquire());
    let called = Asker::waiting(bulkhead.acquire());
    let next = Asker::waiting(bulkhead.acquire());
    drop(waits);
    drop(permit);
    assert_eq!((called.woken(), next.woken()), (1, 0));
    drop(called);
    assert_eq!(next.woken(), 1);
    drop(next);
    assert_eq!((bulkhead.stats().in_use, bulkhead.stats().waiting), (0, 0));
    let _permit = bulkhead.try_acquire().unwrap();
    let denied = Asker::waiting(bulkhead.acquire());
    clock.advance(60 * SECOND);
    assert_eq!(denied.woken(), 1);
    drop(denied);
    assert_eq!((bulkhead.stats().in_use, bulkhead.stats().waiting), (1, 0));
}

#[test]
fn a_leaked_waiter_leaves_the_queue_at_its_deadline() {
    let (bulkhead, clock) = bulkhead("bulkhead 1 queue=1 wait=1s");
    let permit = bulkhead.try_acquire().unwrap();
    std::mem::forget(Asker::waiting(bulkhead.acquire()));
    assert_eq!(bulkhead.stats().waiting, 1);
    clock.advance(SECOND);
    assert_eq!(bulkhead.stats().waiting, 0);
    let next = Asker::waiting(bulkhead.acquire());
    drop(permit);
    assert_eq!(next.woken(), 1);
}

#[test]
fn a_lower_limit_revokes_nothing_and_a_higher_one_wakes() {
    let (bulkhead, _clock) = bulkhead("bulkhead 3 queue=5");
    let mut permits: Vec<_> = (0..3).map_while(|_| bulkhead.try_acquire()).collect();
    bulkhead.set_limit(1);
    assert_eq!((bulkhead.stats().in_use, bulkhead.stats().limit), (3, 1));
    let waits = [Asker::waiting(bulkhead.acquire()), Asker::waiting(bulkhead.acquire())];
    permits.truncate(1);
    assert_eq!(waits[0].woken(), 0, "one is in, and one may be");
    permits.clear();
    assert_eq!((waits[0].woken(), waits[1].woken()), (1, 0));
    bulkhead.set_limit(2);
    assert_eq!(waits[1].woken(), 1);
    bulkhead.set_limit(0);
    assert_eq!(bulkhead.stats().limit, 1);
    bulkhead.set_limit(u32::MAX);
    assert_eq!(bulkhead.stats().limit, 1_000_000_000);
}

#[test]
fn a_past_deadline_is_denied_even_with_free_permits() {
    let (bulkhead, clock) = bulkhead("bulkhead 1 queue=1");
    let just_passed = clock.now().saturating_sub(Span::from_micros(1));
    assert_eq!(bulkhead.acquire_until(just_passed).blocking().denial(), Some(Denial::TooLong));
    assert!(bulkhead.acquire_until(clock.now()).blocking().allowed(), "it is tried, but not waited for");
    assert!(bulkhead.acquire_until(clock.now().saturating_add(Span::from_micros(1))).blocking().allowed());
    let _permit = bulkhead.try_acquire().unwrap();
    assert_eq!(bulkhead.acquire_within(Duration::ZERO).blocking().denial(), Some(Denial::TooLong));
    assert_eq!(bulkhead.acquire_until(clock.now()).blocking().denial(), Some(Denial::TooLong));
}

/// The clock steps back by a day while a call waits; a free permit is still granted.
/// (`guard/clock_steps.rs` tests that no wait lasts a day.)
#[test]
fn a_backward_clock_step_loses_no_waiter() {
    let (bulkhead, clock) = bulkhead("bulkhead 1 queue=2 wait=1s");
    let permit = bulkhead.try_acquire().unwrap();
    let (mut first, second) = (Asker::waiting(bulkhead.acquire()), Asker::waiting(bulkhead.acquire()));
    let now = clock.now();
    clock.set(now.saturating_sub(Span::from_micros(86_400_000_000)));
    drop(permit);
    assert!(first.poll().is_some_and(|entry| entry.allowed()));
    assert_eq!(second.woken(), 1, "the entry was dropped");
}

#[test]
fn a_permit_outlives_its_bulkhead() {
    let (bulkhead, _clock) = bulkhead("bulkhead 1 queue=1");
    let permit = bulkhead.try_acquire().unwrap();
    let waits = Asker::waiting(bulkhead.acquire());
    drop(bulkhead);
    std::thread::spawn(move || drop(permit)).join().unwrap();
    assert_eq!(waits.woken(), 1);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[test]
fn a_panicking_waker_loses_no_permit() {
    let (bulkhead, _clock) = bulkhead("bulkhead 2 queue=5");
    let permits = (bulkhead.try_acquire(), bulkhead.try_acquire());
    let mut panics = Box::pin(bulkhead.acquire());
    let waker = Waker::from(Arc::new(Panics));
    assert!(panics.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut next = Asker::waiting(bulkhead.acquire());
    // Two more permits go to both who wait at once.
    assert!(catch_unwind(AssertUnwindSafe(|| bulkhead.set_limit(4))).is_err());
    assert_eq!(next.woken(), 1);
    drop(permits);
    assert!(next.poll().is_some_and(|entry| entry.allowed()));
    drop(panics);
    assert_eq!(bulkhead.stats().in_use, 0);
}

#[derive(Default)]
struct Events(Mutex<Vec<Event>>);

impl Observer for Events {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

fn denial(event: &Event) -> Option<Denial> {
    match event {
        Event::BulkheadDenied { name: Some(name), denial, .. } if &**name == "printer" => Some(*denial),
        _ => None,
    }
}

#[test]
fn denials_are_reported() {
    let events = Arc::new(Events::default());
    let clock = ManualClock::default();
    let builder = Bulkhead::builder("bulkhead 1 queue=1").clock(clock.clone()).observer(Arc::clone(&events));
    let bulkhead = builder.name("printer").build().unwrap();
    let _permit = bulkhead.try_acquire();
    assert!(bulkhead.try_acquire().is_none());
    let mut waits = Asker::waiting(bulkhead.acquire());
    assert!(bulkhead.try_acquire().is_none());
    clock.advance(SECOND);
    assert!(waits.poll().is_some());
    let denials: Vec<Denial> = events.0.lock().unwrap().iter().filter_map(denial).collect();
    // The first could have waited, the second could not.
    assert_eq!(denials, [Denial::TooLong, Denial::QueueFull, Denial::TooLong]);
}

/// What an algorithm has seen.
type Ended = Arc<Mutex<Vec<CompletedCall>>>;

struct Notes(Ended);

impl Adapt for Notes {
    fn after_call(&mut self, call: &CompletedCall) -> u32 {
        self.0.lock().unwrap().push(*call);
        call.limit + 1
    }
}

#[test]
fn an_algorithm_sees_each_call_and_sets_the_limit() {
    let (ended, clock) = (Ended::default(), ManualClock::default());
    let builder =
        Bulkhead::builder("bulkhead 2 queue=3").clock(clock.clone()).adapt(Notes(Arc::clone(&ended)));
    let bulkhead = builder.build().unwrap();
    let (one, two) = (bulkhead.try_acquire().unwrap(), bulkhead.try_acquire().unwrap());
    let waits = [Asker::waiting(bulkhead.acquire()), Asker::waiting(bulkhead.acquire())];
    clock.advance(Duration::from_millis(30));
    one.finish(Outcome::Success);
    // One permit was returned, and there is one more.
    assert_eq!((waits[0].woken(), waits[1].woken(), bulkhead.stats().limit), (1, 1, 3));
    drop(two);
    let seen: Vec<_> =
        ended.lock().unwrap().iter().map(|call| (call.outcome, call.took, call.in_use, call.limit)).collect();
    let took = Span::from_micros(30_000);
    assert_eq!(seen, [(Outcome::Success, took, 1, 2), (Outcome::Dropped, took, 2, 3)]);
}

/// Panics when a call fails.
struct PanicsOnFailure;

impl Adapt for PanicsOnFailure {
    fn after_call(&mut self, call: &CompletedCall) -> u32 {
        assert!(call.outcome == Outcome::Success, "a rule that panics");
        call.limit
    }
}

#[test]
fn a_panicking_algorithm_loses_no_permit() {
    let bulkhead = Bulkhead::builder("bulkhead 1 queue=1").adapt(PanicsOnFailure).build().unwrap();
    let permit = bulkhead.try_acquire().unwrap();
    let mut next = Asker::waiting(bulkhead.acquire());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(permit))).is_err());
    let permit = next.poll().unwrap().permit().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| permit.finish(Outcome::Failure))).is_err());
    // One that is dropped by a panic must not end the process by a second one.
    let permit = bulkhead.try_acquire().unwrap();
    let said = catch_unwind(AssertUnwindSafe(|| {
        let _permit = permit;
        panic!("the call panics");
    }));
    assert_eq!(said.unwrap_err().downcast_ref(), Some(&"the call panics"));
    assert_eq!(bulkhead.stats().in_use, 0);
}

/// Panics once on demand, and then shows the time.
#[derive(Clone, Debug, Default)]
struct Trips {
    clock: ManualClock,
    /// After how many looks it panics, plus one; 0 for never.
    after: Arc<AtomicU32>,
}

impl Clock for Trips {
    fn now(&self) -> Time {
        let left = self.after.load(Ordering::SeqCst);
        self.after.store(left.saturating_sub(1), Ordering::SeqCst);
        assert!(left != 1, "a clock that panics");
        self.clock.now()
    }

    fn ring_at(&self, time: Time, alarm: Alarm) {
        self.clock.ring_at(time, alarm);
    }
}

/// A rule that moves nothing.
struct Stays;

impl Adapt for Stays {
    fn after_call(&mut self, call: &CompletedCall) -> u32 {
        call.limit
    }
}

/// An algorithm needs the start of a call: the clock is read after the permit was taken.
#[test]
fn a_panicking_clock_loses_no_permit() {
    let clock = Trips::default();
    let builder = Bulkhead::builder("bulkhead 1 queue=2").adapt(Stays);
    let bulkhead = builder.clock(clock.clone()).build().unwrap();
    clock.after.store(1, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| bulkhead.try_acquire())).is_err());
    assert_eq!(bulkhead.stats().in_use, 0);
    // A waiter with a permit, and another behind it: the queue is polled first, and then the call
    // begins.
    let permit = bulkhead.try_acquire().unwrap();
    let (mut first, mut second) = (Asker::waiting(bulkhead.acquire()), Asker::waiting(bulkhead.acquire()));
    drop(permit);
    assert_eq!((first.woken(), second.woken(), bulkhead.stats().in_use), (1, 0, 1));
    clock.after.store(2, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| first.poll().is_some())).is_err());
    assert!(second.poll().is_some_and(|entry| entry.allowed()));
    assert_eq!((bulkhead.stats().in_use, bulkhead.stats().waiting), (0, 0));
}

/// Asks the bulkhead when its waker is dropped: that would wait for ever under its lock.
mod nosy {
    use sluicegate_guard::Bulkhead;
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    pub(super) struct Nosy(pub(super) Bulkhead);

    impl Wake for Nosy {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Nosy {
        fn drop(&mut self) {
            let _ = self.0.stats();
        }
    }

    pub(super) fn waker(bulkhead: &Bulkhead) -> Waker {
        Waker::from(Arc::new(Nosy(bulkhead.clone())))
    }
}

#[test]
fn no_waker_is_dropped_under_the_lock() {
    let (tell, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (bulkhead, clock) = bulkhead("bulkhead 1 queue=3");
        let permit = bulkhead.try_acquire().unwrap();
        let mut enters: Vec<_> = (0..3).map(|_| Box::pin(bulkhead.acquire())).collect();
        // Each time another waker, so that those of before are dropped.
        for _ in 0..3 {
            for enter in &mut enters {
                let waker = nosy::waker(&bulkhead);
                assert!(enter.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
        }
        enters.pop();
        drop(permit);
        clock.advance(SECOND);
        for enter in &mut enters {
            let waker = nosy::waker(&bulkhead);
            assert!(enter.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        }
        let _ = tell.send(());
    });
    assert_eq!(seen.recv_timeout(Duration::from_secs(30)), Ok(()));
}
