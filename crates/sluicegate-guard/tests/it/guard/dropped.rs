//! Whatever happens to a call, everything comes back.

use super::polling::{Polled, sleep};
use sluicegate_guard::breaker::State;
use sluicegate_guard::guard::{Failure, Guard};
use sluicegate_guard::{ManualClock, Outcome};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn guard(clock: &ManualClock) -> Guard {
    Guard::builder("g")
        .bulkhead("bulkhead 1 queue=2 wait=1s")
        .breaker("breaker 100%/4calls min=4 open=1s")
        .timeout(100 * MS)
        .retry("retry 2 budget=100% backoff=100ms")
        .deadline(Duration::from_secs(2))
        .clock(clock.clone())
        .seed(1)
        .build()
        .unwrap()
}

/// Waiting for a permit, running, backing off, falling back: once per millisecond of the call.
#[test]
fn a_call_dropped_at_any_step_leaves_nothing_behind() {
    for after in 0..=600_u32 {
        let clock = ManualClock::default();
        let guard = guard(&clock);
        let held = Arc::new(());
        let permit = guard.bulkhead().unwrap().try_acquire();
        let call = {
            let (clock, held) = (clock.clone(), Arc::clone(&held));
            guard.call(move || {
                let (clock, held) = (clock.clone(), Arc::clone(&held));
                async move {
                    sleep(&clock, 60 * MS).await;
                    drop(held);
                    Err::<u8, ()>(())
                }
            })
        };
        let fallback_clock = clock.clone();
        let mut call = Polled::new(call.fallback(move |_| async move {
            sleep(&fallback_clock, 50 * MS).await;
            1
        }));
        let mut ended = call.poll().is_some();
        let mut permit = permit;
        for ms in 0..after {
            if ms == 30 {
                permit = None;
            }
            clock.advance(MS);
            if !ended {
                ended = call.poll_if_woken().is_some();
            }
        }
        assert!(ended || after < 600, "it was not woken");
        drop((call, permit));
        let stats = guard.bulkhead().unwrap().stats();
        assert_eq!((stats.in_use, stats.waiting), (0, 0), "dropped after {after} ms");
        assert_eq!(Arc::strong_count(&held), 1, "dropped after {after} ms");
        // The next one finds all as it was.
        let mut next = Polled::new(guard.call(|| async { Ok::<u8, ()>(7) }));
        assert_eq!(next.poll(), Some(Ok(7)), "dropped after {after} ms");
    }
}

#[test]
fn a_panic_propagates_fails_and_releases_the_permit() {
    for panics_at_once in [true, false] {
        let clock = ManualClock::default();
        let guard = guard(&clock);
        for _ in 0..4 {
            let call = guard.call(|| {
                assert!(!panics_at_once, "the closure panics");
                async {
                    assert!(panics_at_once, "the future panics");
                    Ok::<u8, ()>(1)
                }
            });
            assert!(catch_unwind(AssertUnwindSafe(|| Polled::new(call).poll())).is_err());
        }
        assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
        assert_eq!(guard.breaker().unwrap().state(), State::Open);
        assert_eq!((guard.stats().failed, guard.stats().retried), (4, 0));
    }
}

#[test]
fn a_panicking_classifier_or_fallback_holds_nothing() {
    let clock = ManualClock::default();
    let guard = guard(&clock);
    let classified =
        guard.call(|| async { Ok::<u8, ()>(1) }).classify(|_| -> Outcome { panic!("the classifier panics") });
    assert!(catch_unwind(AssertUnwindSafe(|| Polled::new(classified).poll())).is_err());
    let ignored = guard.call(|| async { Err::<u8, ()>(()) }).classify(|_| Outcome::Ignored);
    assert_eq!(Polled::new(ignored).poll(), Some(Err(Failure::Ignored(()))));
    // Twice, with one permit for fallbacks: the second would be denied had the first one kept it.
    let bare = Guard::builder("g").max_fallbacks(1).build().unwrap();
    for _ in 0..2 {
        let call = bare.call(|| async { Err::<u8, ()>(()) });
        let falls = call.fallback(|_| async { panic!("the fallback panics") });
        let said = catch_unwind(AssertUnwindSafe(|| Polled::new(falls).poll())).unwrap_err();
        assert_eq!(said.downcast_ref(), Some(&"the fallback panics"));
    }
    assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
}

/// Tells what it sees when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_dropped_call_is_gone_before_its_permit_is_free() {
    let guard = Guard::builder("g").bulkhead("bulkhead 1").build().unwrap();
    let seen = Cell::new(None);
    let mut call = Polled::new(guard.call(|| {
        let held = OnDrop(|| seen.set(Some(guard.bulkhead().unwrap().stats().in_use)));
        async move {
            let _held = held;
            std::future::pending::<Result<u8, ()>>().await
        }
    }));
    assert!(call.poll().is_none());
    drop(call);
    assert_eq!((seen.get(), guard.bulkhead().unwrap().stats().in_use), (Some(1), 0));
}

#[test]
fn a_dropped_fallback_is_gone_before_its_permit_is_free() {
    let guard = Guard::builder("g").max_fallbacks(1).build().unwrap();
    let fails = || guard.call(|| async { Err::<u8, ()>(()) });
    let seen = Cell::new(None);
    let mut call = Polled::new(fails().fallback(|_| {
        let held = OnDrop(|| seen.set(Polled::new(fails().fallback(|_| async { 7 })).poll()));
        async move {
            let _held = held;
            std::future::pending().await
        }
    }));
    assert!(call.poll().is_none());
    drop(call);
    assert_eq!(
        seen.take(),
        Some(Err(Failure::Failed(()))),
        "there is one permit for fallbacks, and it is in use"
    );
    assert_eq!(Polled::new(fails().fallback(|_| async { 7 })).poll(), Some(Ok(7)));
}

/// A probe that is dropped, or hangs, does not keep the breaker half-open.
#[test]
fn a_dropped_or_hung_probe_is_resolved() {
    let clock = ManualClock::default();
    let guard = guard(&clock);
    for _ in 0..4 {
        let call = guard.call(|| async { Err::<u8, _>(()) }).classify(|_| Outcome::Failure);
        let mut call = Polled::new(call);
        let _ = call.run(&clock, MS);
    }
    let breaker = guard.breaker().unwrap();
    assert_eq!(breaker.state(), State::Open);
    clock.advance(Duration::from_secs(1));
    let mut hangs = Polled::new(guard.call(std::future::pending::<Result<u8, ()>>));
    assert!(hangs.poll().is_none());
    drop(hangs);
    clock.advance(Duration::from_secs(1));
    let mut hangs = Polled::new(guard.call(std::future::pending::<Result<u8, ()>>));
    assert_eq!(hangs.run(&clock, MS), Err(Failure::TimedOut));
    clock.advance(Duration::from_secs(1));
    assert_eq!(Polled::new(guard.call(|| async { Ok::<u8, ()>(7) })).poll(), Some(Ok(7)));
    assert_eq!(breaker.state(), State::Closed);
}
