//! Calls: finished, dropped, slow, in a panic, in a future; forced states, changes, the clock,
//! events.

use super::{SECOND, admitted, breaker, denied_for, open};
use sluicegate_guard::breaker::{Breaker, CallError, Change, Counts, Forced, Outcome, State};
use sluicegate_guard::{Clock as _, Event, ManualClock, Observer, RetryAfter, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[test]
fn open_ends_exactly_at_retry_after() {
    let (payments, clock) = breaker("breaker 50%/4calls open=5s");
    open(&payments);
    clock.advance(2 * SECOND);
    assert_eq!(denied_for(&payments), 3 * SECOND);
    clock.advance(Duration::from_micros(2_999_999));
    assert_eq!(denied_for(&payments), Duration::from_micros(1));
    assert!(payments.peek().is_some());
    clock.advance(Duration::from_micros(1));
    assert_eq!(payments.peek(), None);
    assert!(admitted(&payments).is_probe());
}

#[test]
fn dropped_calls_count_nothing_dropped_probes_and_panics_fail() {
    let (payments, clock) = breaker("breaker 50%/4calls");
    for _ in 0..10 {
        drop(admitted(&payments));
        admitted(&payments).ignore();
    }
    assert_eq!(payments.stats().window, Counts::default());
    let panics = || {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _admitted = admitted(&payments);
            std::panic::resume_unwind(Box::new("no message"));
        }));
        assert!(unwound.is_err());
    };
    (0..4).for_each(|_| panics());
    assert_eq!(payments.state(), State::Open);
    clock.advance(5 * SECOND);
    drop(admitted(&payments));
    assert_eq!(payments.state(), State::Open);
    clock.advance(5 * SECOND);
    panics();
    assert_eq!(payments.state(), State::Open);
    let stats = payments.stats();
    assert_eq!(
        (stats.totals.failures, stats.totals.dropped, stats.totals.ignored, stats.totals.opened),
        (5, 11, 10, 3)
    );
}

#[test]
fn slow_calls_count_whether_they_fail_or_not() {
    let (payments, clock) = breaker("breaker 100%/4calls slow=2s slow-rate=75%");
    let takes = |time: Duration, outcome: Outcome| {
        let call = admitted(&payments);
        clock.advance(time);
        call.finish(outcome);
    };
    takes(2 * SECOND, Outcome::Success);
    takes(2 * SECOND + Duration::from_micros(1), Outcome::Success);
    takes(3 * SECOND, Outcome::Failure);
    takes(9 * SECOND, Outcome::Ignored);
    assert_eq!(payments.stats().window, Counts { total: 3, failed: 1, slow: 2 });
    takes(3 * SECOND, Outcome::Success);
    assert_eq!((payments.state(), payments.stats().totals.slow), (State::Open, 3));
    // A slow probe does not close it.
    clock.advance(5 * SECOND);
    takes(3 * SECOND, Outcome::Success);
    assert_eq!(payments.state(), State::Open);
}

#[test]
fn probes_are_decided_once_the_rest_cannot_change_it() {
    // 50 % of 4: two failures are too many, three successes are enough.
    for (ends, after) in
        [("ff", State::Open), ("sfs", State::HalfOpen), ("sfss", State::Closed), ("sss", State::Closed)]
    {
        let (payments, clock) = breaker("breaker 50%/4calls probes=4");
        open(&payments);
        clock.advance(5 * SECOND);
        let probes: Vec<_> = (0..4).map(|_| admitted(&payments)).collect();
        assert!(!payments.try_acquire().allowed());
        for (probe, end) in probes.into_iter().zip(ends.chars()) {
            assert_eq!(payments.state(), State::HalfOpen, "{ends}");
            if end == 's' { probe.success() } else { probe.failure() }
        }
        // Unused probes have been dropped by now: failed, unless the phase was decided before.
        let expected = if after == State::HalfOpen { State::Open } else { after };
        assert_eq!(payments.state(), expected, "{ends}");
    }
}

#[test]
fn forced_states_last_until_unforced() {
    let (payments, clock) = breaker("breaker 50%/4calls");
    let early = admitted(&payments);
    payments.force(Forced::Open);
    assert_eq!(
        payments.try_acquire().admitted().map_err(|denied| (denied.state(), denied.retry_after())).err(),
        Some((State::ForcedOpen, RetryAfter::Never))
    );
    clock.advance(1_000 * SECOND);
    assert!(!payments.try_acquire().allowed());
    early.failure();
    payments.unforce();
    assert_eq!((payments.state(), payments.stats().window.total), (State::Closed, 0));

    payments.force(Forced::Disabled);
    (0..10).for_each(|_| admitted(&payments).failure());
    assert_eq!((payments.state(), payments.stats().window.total), (State::Disabled, 0));

    payments.force(Forced::MetricsOnly);
    (0..10).for_each(|_| admitted(&payments).failure());
    let stats = payments.stats();
    assert_eq!(
        (stats.state, stats.window.failed, stats.totals.would_have_opened, stats.totals.opened),
        (State::MetricsOnly, 4, 1, 0)
    );
    payments.reset();
    assert_eq!(payments.state(), State::Closed);
    payments.unforce();
    open(&payments);
}

#[test]
fn a_change_keeps_the_open_state_and_counts_of_the_same_window() {
    let (payments, clock) = breaker("breaker 50%/4calls");
    (0..3).for_each(|_| admitted(&payments).failure());
    payments.change("breaker 50%/4calls open=10s min=4").unwrap();
    admitted(&payments).failure();
    assert_eq!(payments.state(), State::Open, "three were counted already");
    assert_eq!(denied_for(&payments), 10 * SECOND);
    payments.change("breaker 50%/4calls open=3s").unwrap();
    clock.advance(3 * SECOND);
    let old = admitted(&payments);
    payments.change("breaker 50%/4calls probes=2").unwrap();
    let new = [admitted(&payments), admitted(&payments)];
    assert!(!payments.try_acquire().allowed());
    old.failure();
    for probe in new {
        probe.success();
    }
    assert_eq!(payments.state(), State::Closed);
    (0..3).for_each(|_| admitted(&payments).failure());
    payments.change("breaker 50%/8calls").unwrap();
    assert_eq!(payments.stats().window.total, 0);
    assert_eq!(payments.config().to_string(), "breaker 50%/8calls");
    assert!(payments.change("breaker 50%").is_err());
    assert_eq!(payments.config().to_string(), "breaker 50%/8calls");
}

#[test]
fn a_backward_clock_step_denies_for_at_most_open() {
    let (payments, clock) = breaker("breaker 50%/4calls open=5s probe-ttl=5s");
    open(&payments);
    let now = clock.now();
    clock.set(Time::from_micros(now.as_micros() - 3_600_000_000).unwrap());
    assert_eq!(denied_for(&payments), 5 * SECOND);
    clock.advance(5 * SECOND);
    let _probe = admitted(&payments);
    clock.set(Time::from_micros(now.as_micros() - 7_200_000_000).unwrap());
    assert_eq!(denied_for(&payments), 10 * SECOND);
    clock.advance(5 * SECOND);
    assert_eq!(payments.state(), State::Open);
}

#[test]
fn not_every_error_is_a_failure() {
    let (payments, _) = breaker("breaker 50%/4calls");
    let classify = |result: &Result<(), u16>| match result {
        Ok(()) => Outcome::Success,
        Err(400..500) => Outcome::Ignored,
        Err(_) => Outcome::Failure,
    };
    for _ in 0..10 {
        assert_eq!(payments.call_with(|| Err(404), classify), Err(CallError::Failed(404)));
    }
    assert_eq!(payments.stats().window.total, 0);
    for _ in 0..4 {
        let _ = payments.call_with(|| Err(503), classify);
    }
    assert!(matches!(payments.call_with(|| Ok(()), classify), Err(CallError::Denied(_))));
}

#[test]
fn run_admits_on_first_poll_and_a_dropped_probe_fails() {
    let (payments, clock) = breaker("breaker 50%/4calls");
    let mut context = Context::from_waker(Waker::noop());
    let never_polled = payments.run(std::future::pending::<Result<(), ()>>());
    drop(never_polled);
    assert_eq!(payments.stats().totals.allowed(), 0);
    {
        let mut pending = pin!(payments.run(std::future::pending::<Result<(), ()>>()));
        assert!(pending.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!((payments.stats().totals.dropped, payments.stats().window.total), (1, 0));
    open(&payments);
    clock.advance(5 * SECOND);
    {
        let mut probe = pin!(payments.run(std::future::pending::<Result<(), ()>>()));
        assert!(probe.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(payments.state(), State::Open);
    clock.advance(5 * SECOND);
    let mut probe = pin!(payments.run(std::future::ready(Ok::<_, ()>(7))));
    assert_eq!(probe.as_mut().poll(&mut context), Poll::Ready(Ok(7)));
    assert_eq!(payments.state(), State::Closed);
    let mut fails = pin!(payments.run_with(std::future::ready(Err::<(), _>("no")), |_| Outcome::Ignored));
    assert_eq!(fails.as_mut().poll(&mut context), Poll::Ready(Err(CallError::Failed("no"))));
}

#[derive(Default)]
struct Heard {
    changes: Mutex<Vec<(Change, State)>>,
    /// An observer may ask the breaker: no lock is held.
    breaker: Mutex<Option<Breaker>>,
}

impl Observer for Heard {
    fn event(&self, event: &Event) {
        let Event::Breaker { name, change, state, .. } = event else { return };
        assert_eq!(name.as_deref(), Some("payments"));
        if let Some(breaker) = &*self.breaker.lock().unwrap() {
            let _ = breaker.stats();
        }
        self.changes.lock().unwrap().push((*change, *state));
    }
}

#[test]
fn observers_run_without_a_lock_held() {
    let (clock, heard) = (ManualClock::default(), Arc::new(Heard::default()));
    let builder = Breaker::builder("breaker 50%/4calls probe-ttl=1s").name("payments").clock(clock.clone());
    let payments = builder.observer(Arc::clone(&heard)).build().unwrap();
    *heard.breaker.lock().unwrap() = Some(payments.clone());
    open(&payments);
    clock.advance(5 * SECOND);
    std::mem::forget(admitted(&payments));
    clock.advance(6 * SECOND);
    admitted(&payments).success();
    payments.force(Forced::Open);
    payments.unforce();
    payments.unforce();
    let changes = heard.changes.lock().unwrap();
    let failed = |failed| Counts { total: failed, failed, slow: 0 };
    assert_eq!(
        *changes,
        [
            (Change::Opened(failed(4)), State::Open),
            (Change::HalfOpened, State::HalfOpen),
            // The next to ask finds that the probe hung, and is one itself.
            (Change::Opened(failed(1)), State::Open),
            (Change::HalfOpened, State::HalfOpen),
            (Change::Closed(Counts { total: 1, failed: 0, slow: 0 }), State::Closed),
            (Change::Forced(Forced::Open), State::ForcedOpen),
            (Change::Reset, State::Closed),
        ]
    );
    drop(changes);
    *heard.breaker.lock().unwrap() = None;
}

/// Panics on every event while it is switched on.
#[derive(Default)]
struct Panics(AtomicBool);

impl Observer for Panics {
    fn event(&self, event: &Event) {
        assert!(!self.0.load(Ordering::SeqCst), "changes of {event:?}");
    }
}

/// The observer panics on the event of the probe, then again on its failure during that panic: a
/// second panic would abort the process.
#[test]
fn an_observer_that_panics_loses_no_probe() {
    let (clock, observer) = (ManualClock::default(), Arc::new(Panics::default()));
    let builder = Breaker::builder("breaker 50%/4calls probe-ttl=1h").clock(clock.clone());
    let payments = builder.observer(Arc::clone(&observer)).build().unwrap();
    open(&payments);
    clock.advance(5 * SECOND);
    observer.0.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(payments.try_acquire()))).is_err());
    assert_eq!(payments.state(), State::Open, "the probe has failed");
    observer.0.store(false, Ordering::SeqCst);
    clock.advance(5 * SECOND);
    let probe = admitted(&payments);
    observer.0.store(true, Ordering::SeqCst);
    // Dropped without a panic, so that the observer panics alone.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(probe))).is_err());
    observer.0.store(false, Ordering::SeqCst);
    clock.advance(5 * SECOND);
    admitted(&payments).success();
    assert_eq!(payments.state(), State::Closed);
}

#[test]
fn clones_share_state_and_an_admitted_call_may_outlive_them() {
    let (payments, _) = breaker("breaker 50%/4calls");
    let same = payments.clone();
    open(&same);
    assert_eq!(payments.state(), State::Open);
    let (gone, _) = breaker("breaker 50%/4calls");
    let admitted = admitted(&gone);
    drop(gone);
    admitted.failure();
}
