//! Threads: no outcome is lost, and no call is admitted beside the probes.

use super::{SECOND, breaker, open};
use sluicegate_guard::breaker::{Admission, State};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn every_outcome_is_counted_once() {
    for rules in [
        "breaker 100%/100000calls",
        "breaker 100%/1d min=1000000",
        "breaker 100%/1d mode=metrics-only min=1000000",
    ] {
        let (payments, _) = breaker(rules);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let payments = &payments;
                scope.spawn(move || {
                    for call in 0..2_000 {
                        let _ = payments.call(|| if call % 8 == thread { Err(()) } else { Ok(()) });
                    }
                });
            }
        });
        let stats = payments.stats();
        assert_eq!(
            (stats.totals.allowed(), stats.totals.successes, stats.totals.failures, stats.totals.late),
            (16_000, 14_000, 2_000, 0)
        );
        assert_eq!((stats.window.total, stats.window.failed), (16_000, 2_000), "{rules}");
    }
}

/// Calls end while others are admitted, and the breaker opens and closes: in each half-open phase
/// only the probes are admitted.
#[test]
fn probes_are_counted_when_calls_overlap() {
    const PROBES: u32 = 3;
    let (payments, clock) = breaker("breaker 50%/4calls probes=3 open=1s probe-ttl=1h");
    for round in 0..100 {
        open(&payments);
        clock.advance(SECOND);
        let (probes, barrier) = (AtomicU32::new(0), Barrier::new(4));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (payments, probes, barrier) = (&payments, &probes, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for _ in 0..20 {
                        match payments.try_acquire() {
                            Admission::Allowed(admitted) if admitted.is_probe() => {
                                probes.fetch_add(1, Ordering::Relaxed);
                                // Held until all threads are done, so that the phase is not decided
                                // meanwhile.
                                std::mem::forget(admitted);
                            }
                            Admission::Allowed(_) => {
                                panic!("it is half-open, round {round}, thread {thread}")
                            }
                            Admission::Denied(denied) => {
                                assert!(matches!(denied.state(), State::HalfOpen | State::Open));
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(probes.into_inner(), PROBES, "round {round}");
        payments.reset();
    }
}
