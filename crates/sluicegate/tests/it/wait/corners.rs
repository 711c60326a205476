//! Interactions: queues with changes, resets, other limiters, clocks and wakers of all kinds.

use super::caller::Caller;
use sluicegate::MemoryStore;
use sluicegate::clock::{Alarm, Clock, ManualClock, TokioClock};
use sluicegate::wait::{Denial, Priority};
use sluicegate::{Limiter, RetryAfter, Span, Time, VerbError, check_all};
use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn limiter(limit: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limit).clock(clock.clone()).build().unwrap(), clock)
}

/// Counts how often an alarm is set.
#[derive(Clone, Debug)]
struct Counting {
    clock: ManualClock,
    alarms: Arc<AtomicUsize>,
}

impl Clock for Counting {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn ring_at(&self, time: Time, alarm: Alarm) {
        self.alarms.fetch_add(1, Ordering::Relaxed);
        self.clock.ring_at(time, alarm);
    }
}

/// One call waits for long under a key, and a thousand for a second each under others: one alarm
/// each, and not one more for each that has rung.
#[test]
fn one_alarm_is_set_per_due_time() {
    let (clock, alarms) = (ManualClock::default(), Arc::new(AtomicUsize::new(0)));
    let counting = Counting { clock: clock.clone(), alarms: Arc::clone(&alarms) };
    let limiter = Limiter::builder("min-interval 1h").clock(counting.clone()).build().unwrap();
    let store = MemoryStore::builder().clock(counting).build().unwrap();
    drop(limiter);
    let in_store =
        |limit: &str, scope: &'static str| Limiter::builder(limit).in_store(&store, scope).build().unwrap();
    let (slow, fast) = (in_store("min-interval 1h", "slow"), in_store("min-interval 1s", "fast"));
    assert!(slow.check("k").allowed());
    let mut long = Caller::new(slow.acquire("k", 1));
    for key in 0..1_000 {
        assert!(fast.check(key).allowed());
        let mut short = Caller::new(fast.acquire(key, 1));
        clock.advance(SECOND);
        assert!(short.poll().is_some());
    }
    assert_eq!(alarms.load(Ordering::Relaxed), 1_001);
    clock.advance(3_600 * SECOND);
    assert!(long.poll().is_some());
    assert_eq!(alarms.load(Ordering::Relaxed), 1_001);
}

#[test]
fn limiters_of_one_scope_may_have_different_limits() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let old = Limiter::builder("token-bucket 1/s burst=1").in_store(&store, "api").build().unwrap();
    let limits = ["token-bucket 1/s burst=1", "fixed-window 10/min"];
    let new = Limiter::builder(limits).in_store(&store, "api").build().unwrap();
    assert!(old.check("k").allowed());
    let mut waits = Caller::new(old.acquire_within("k", 1, 10 * SECOND));
    assert!(!new.check("k").allowed() && !old.check("k").allowed());
    let mut behind = Caller::new(new.acquire_within("k", 1, 10 * SECOND));
    assert!(waits.waits() && behind.waits());
    clock.advance(2 * SECOND);
    assert!(waits.poll().is_some() && behind.poll().is_some());
}

/// Ten calls have stored permits and are woken together. A dropped one returns its own charge, not
/// those of all.
#[test]
fn a_dropped_waiter_under_smooth_returns_its_own_charge() {
    let (limiter, clock) = limiter("smooth 10/s");
    clock.advance(3_600 * SECOND);
    while limiter.check("k").allowed() {}
    let mut callers: Vec<Caller<'_>> = (0..10).map(|_| Caller::new(limiter.acquire("k", 1))).collect();
    limiter.reset("k");
    drop(callers.remove(0));
    assert!(callers.iter_mut().all(|caller| caller.poll().is_some()));
    let more = (0..20).filter(|_| limiter.check("k").allowed()).count();
    assert_eq!(more, 2, "the returned one, and the one that the next caller pays");
}

#[test]
fn a_tokio_clock_works_without_a_runtime() {
    let limiter = Limiter::builder("min-interval 30ms").clock(TokioClock::new()).build().unwrap();
    assert!(limiter.check("k").allowed());
    let acquired = limiter.acquire("k", 1).blocking();
    assert!(acquired.allowed() && acquired.waited() <= SECOND * 20);
    // Nor in one without a timer.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(limiter.acquire("k", 1)).allowed());
}

/// Another limiter of the scope has faster limits: they apply to calls that already wait.
#[test]
fn the_latest_limits_of_a_scope_apply_to_all_waiters() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let limiter = |limit: &str| Limiter::builder(limit).in_store(&store, "a").build().unwrap();
    let (slow, fast) = (limiter("min-interval 1h"), limiter("min-interval 1s"));
    assert!(slow.check("k").allowed());
    let mut first = Caller::new(slow.acquire("k", 1));
    let mut second = Caller::new(fast.acquire_within("k", 1, 10 * SECOND));
    clock.advance(SECOND);
    assert!(first.poll().is_some() && second.poll().is_none());
    clock.advance(SECOND);
    assert!(second.poll().is_some());
}

/// Woken waiters have not polled, and a call that does not wait was admitted since: the plan from
/// before is discarded.
#[test]
fn a_deadline_is_checked_against_the_current_state() {
    let (limiter, clock) = limiter("min-interval 1s");
    assert!(limiter.check("k").allowed());
    let woken = Caller::new(limiter.acquire_within("k", 1, 10 * SECOND));
    clock.advance(SECOND);
    assert_eq!(woken.woken(), 1);
    clock.advance(SECOND);
    assert!(limiter.check("k").allowed());
    clock.advance(Duration::from_millis(100));
    let hasty = Caller::new(limiter.acquire_within("k", 1, Duration::from_millis(500)));
    assert_eq!(hasty.acquired().unwrap().denial(), Some(Denial::TooLong));
    assert!(Caller::new(limiter.acquire_within("k", 1, Duration::from_millis(900))).waits());
}

#[test]
fn a_high_priority_call_sees_woken_waiters() {
    let (limiter, clock) = limiter("min-interval 1s");
    assert!(limiter.check("k").allowed());
    let within = |millis| limiter.acquire_within("k", 1, Duration::from_millis(millis));
    drop(Caller::new(within(1_000).priority(Priority::High)));
    let mut low = Caller::new(limiter.acquire("k", 1).priority(Priority::Low));
    clock.advance(SECOND);
    assert!(low.poll().is_some());
    let mut other = Caller::new(limiter.acquire("k", 1).priority(Priority::Low));
    let high = Caller::new(within(999).priority(Priority::High));
    assert_eq!(high.acquired().unwrap().denial(), Some(Denial::TooLong));
    assert!(other.poll().is_none());
}

/// The machine slept past a waiter's deadline: it is denied, not admitted late.
#[test]
fn a_waiter_past_its_deadline_is_denied() {
    let (limiter, clock) = limiter("min-interval 1s");
    assert!(limiter.check("k").allowed());
    let mut waits = Caller::new(limiter.acquire_within("k", 1, SECOND));
    let start = limiter.now();
    clock.set(start.saturating_add(Span::from(3_600 * SECOND)));
    assert_eq!(waits.poll().unwrap().denial(), Some(Denial::TooLong));
    assert!(limiter.check("k").allowed(), "it was not charged");
    let past = limiter.acquire_until("free", 1, start).blocking();
    assert_eq!(past.denial(), Some(Denial::TooLong));
}

/// A window or log promises how many calls act in any period, so a waiter that is woken late is
/// charged as of when it is woken. Under a bucket, it is charged as of when it was due.
#[test]
fn a_late_waiter_is_charged_when_woken_under_windows_and_logs() {
    let late = Duration::from_millis(9);
    for (limit, next_after) in [
        ("sliding-log 1/s", 1_000_000),
        ("fixed-window 1/s start=first", 1_000_000),
        ("token-bucket 1/s burst=1 + sliding-log 1/s", 1_000_000),
        ("token-bucket 1/s burst=1", 991_000),
    ] {
        let (limiter, clock) = limiter(limit);
        // Without the alarms in between, as after a delay of the timer.
        let pass = |by: Duration| clock.set(clock.now().saturating_add(Span::from(by)));
        assert!(limiter.check("k").allowed());
        let mut callers = [(); 3].map(|()| Caller::new(limiter.acquire("k", 1)));
        assert!(callers.iter_mut().all(|caller| caller.poll().is_none()), "{limit}");
        pass(SECOND + late);
        for [acts, next] in [[0, 1], [1, 2]] {
            assert!(callers[acts].poll().is_some_and(|acquired| acquired.denial().is_none()), "{limit}");
            pass(Duration::from_micros(next_after - 1));
            assert!(callers[next].poll().is_none(), "{limit}: {next} acts too early");
            pass(Duration::from_micros(1) + late);
        }
    }
}

/// The limits change while a woken waiter has not polled: its charge is not rolled back in terms of
/// the old ones.
#[test]
fn a_change_makes_the_charges_of_woken_waiters_final() {
    let (limiter, clock) = limiter("token-bucket 1/h burst=1");
    assert!(limiter.check("k").allowed());
    let woken = Caller::new(limiter.acquire("k", 1));
    clock.advance(3_600 * SECOND);
    assert_eq!(woken.woken(), 1);
    limiter.change("token-bucket 1/s burst=1").unwrap();
    clock.advance(5 * SECOND);
    assert!(limiter.check("k").allowed());
    drop(woken);
    assert!(!limiter.check("k").allowed());
}

#[test]
fn a_change_in_a_memory_store_does_so_too() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let limiter = Limiter::builder("fixed-window 5/60s start=first").in_store(&store, "a").build().unwrap();
    assert!(limiter.check_cost("k", 5).allowed());
    let woken = Caller::new(limiter.acquire("k", 1));
    clock.advance(60 * SECOND);
    assert_eq!(woken.woken(), 1);
    limiter.change("fixed-window 5/30s start=first").unwrap();
    assert!(limiter.check_cost("k", 5).allowed(), "another period starts with fresh state");
    let kept = limiter.reserve("other", 1, Duration::ZERO).unwrap().keep().unwrap();
    drop(woken);
    assert!(!limiter.check("k").allowed());
    assert!(limiter.cancel(&kept));
}

#[test]
fn a_peek_at_another_time_changes_no_plan() {
    let (limiter, _clock) = limiter("min-interval 1s");
    assert!(limiter.check("k").allowed());
    let _waits = Caller::new(limiter.acquire("k", 1));
    let later = limiter.now().saturating_add(Span::from(3_600 * SECOND));
    assert!(!limiter.peek_at("k", 1, later).allowed());
    assert_eq!(limiter.check("k").retry_after(), Some(RetryAfter::After(Span::from(2 * SECOND))));
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("this is a test");
    }
}

#[test]
fn a_panicking_waker_does_not_affect_others() {
    let limiter = Limiter::new("min-interval 20ms").unwrap();
    assert!(limiter.check("k").allowed());
    let waker = Waker::from(Arc::new(Panics));
    let mut first = pin!(limiter.acquire("k", 1));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // By the timer thread, which has seen the panic before.
    assert!(limiter.acquire("k", 1).blocking().allowed());
    assert!(first.poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn a_full_queue_reports_when_to_retry() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("min-interval 1h").clock(clock.clone());
    let limiter = builder.max_waiters(1).build().unwrap();
    assert!(limiter.check("a").allowed() && limiter.check("b").allowed());
    clock.advance(1_800 * SECOND);
    let _waits = Caller::new(limiter.acquire("a", 1));
    let reported =
        |acquired: sluicegate::wait::Acquired| (acquired.denial(), acquired.decision().retry_after());
    let half_an_hour = Some(RetryAfter::After(Span::from(1_800 * SECOND)));
    assert_eq!(reported(limiter.acquire("b", 1).blocking()), (Some(Denial::QueueFull), half_an_hour));
    let none = Limiter::builder("min-interval 1h").clock(clock.clone()).max_queue(0).build().unwrap();
    assert!(none.check("a").allowed());
    let an_hour = Some(RetryAfter::After(Span::from(3_600 * SECOND)));
    assert_eq!(reported(none.acquire("a", 1).blocking()), (Some(Denial::QueueFull), an_hour));
    assert_eq!((none.stats().denied, limiter.stats().denied), (1, 1));
}

#[test]
fn unsupported_verbs_are_rejected_while_calls_wait() {
    let (limiter, clock) = limiter("smooth 1/s");
    let other = Limiter::builder("min-interval 1s").clock(clock).build().unwrap();
    while limiter.check("k").allowed() {}
    let _waits = Caller::new(limiter.acquire("k", 1));
    assert!(limiter.take("k", 1).is_err() && limiter.reserve("k", 1, SECOND).is_err());
    assert!(!limiter.check_within("k", 1, SECOND).unwrap().allowed());
    let together = check_all(&[other.call("k", 1), limiter.call("k", 1)]);
    assert!(matches!(together, Err(VerbError::Smooth(_))));
}

/// Another limit makes calls wait for an hour: the pacer's queue still bounds their number.
#[test]
fn a_pacer_in_a_list_counts_waiters() {
    let clock = ManualClock::default();
    let limits = ["pacer 10/s queue=3", "fixed-window 5/h start=first"];
    let limiter = Limiter::builder(limits).clock(clock.clone()).build().unwrap();
    for _ in 0..5 {
        clock.advance(SECOND);
        assert!(limiter.check("k").allowed());
    }
    clock.advance(SECOND);
    let mut callers: Vec<Caller<'_>> = (0..5).map(|_| Caller::new(limiter.acquire("k", 1))).collect();
    assert_eq!(callers.iter().filter(|caller| caller.waits()).count(), 4);
    assert_eq!(callers[4].acquired().unwrap().denial(), Some(Denial::QueueFull));
    clock.advance(3_600 * SECOND);
    assert!(callers[..4].iter_mut().all(|caller| caller.poll().is_some_and(|acquired| acquired.allowed())));
}
