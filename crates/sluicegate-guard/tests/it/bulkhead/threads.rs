//! Many threads at once.

use sluicegate_guard::Bulkhead;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The limit is never exceeded, and every permit is released, even if waiters give up or are
/// dropped.
#[test]
fn the_limit_is_never_exceeded_and_no_permit_is_lost() {
    const LIMIT: u32 = 3;
    const ROUNDS: u32 = 3_000;
    let bulkhead = Bulkhead::new("bulkhead 3 queue=100 wait=10s").unwrap();
    let (inside, entered) = (AtomicU32::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..8_u32 {
            let (bulkhead, inside, entered) = (&bulkhead, &inside, &entered);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let permit = match (round + number) % 4 {
                        0 => bulkhead.try_acquire(),
                        1 => bulkhead.acquire_within(Duration::from_micros(20)).blocking().permit(),
                        2 => {
                            // Asks, and is gone whatever came of it.
                            let mut enter = Box::pin(bulkhead.acquire());
                            let waker = std::task::Waker::noop();
                            let _ = enter.as_mut().poll(&mut std::task::Context::from_waker(waker));
                            None
                        }
                        _ => {
                            let entry = bulkhead.acquire().blocking();
                            assert!(entry.allowed(), "{:?}", entry.denial());
                            entry.permit()
                        }
                    };
                    if permit.is_some() {
                        let others = inside.fetch_add(1, Ordering::SeqCst);
                        assert!(others < LIMIT, "{others} others are in");
                        entered.fetch_add(1, Ordering::Relaxed);
                        if round % 16 == 0 {
                            thread::yield_now();
                        }
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let stats = bulkhead.stats();
    assert_eq!((stats.in_use, stats.waiting), (0, 0));
    assert!(entered.load(Ordering::Relaxed) >= u64::from(2 * ROUNDS), "waiters are served");
}

/// Every waiter is woken although the limit keeps changing.
#[test]
fn a_changing_limit_leaves_no_waiter_behind() {
    let bulkhead = Bulkhead::new("bulkhead 1 queue=100 wait=60s").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    assert!(bulkhead.acquire().blocking().allowed());
                }
            });
        }
        scope.spawn(|| {
            for limit in 0..2_000 {
                bulkhead.set_limit(1 + limit % 3);
            }
        });
    });
    assert_eq!((bulkhead.stats().in_use, bulkhead.stats().waiting), (0, 0));
}
