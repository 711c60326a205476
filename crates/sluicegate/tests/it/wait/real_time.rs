//! In real time: threads that block, and the timer that wakes them.

use sluicegate::wait::Denial;
use sluicegate::{Gate, Limiter};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn threads_wait_until_they_are_due() {
    let gate = Gate::new("token-bucket 200/s burst=1").unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10).for_each(|_| assert!(gate.acquire(1).blocking().allowed())));
        }
    });
    // 39 intervals of 5 ms. How much longer it takes depends on the machine, so that is not tested.
    assert!(began.elapsed() >= Duration::from_millis(195), "{:?}", began.elapsed());
    assert_eq!(gate.stats().allowed, 40);
}

#[test]
fn a_thread_with_a_hopeless_deadline_does_not_wait() {
    let limiter = Limiter::new("min-interval 1h").unwrap();
    assert!(limiter.acquire("k", 1).blocking().allowed());
    let acquired = limiter.acquire_within("k", 1, Duration::from_secs(60)).blocking();
    assert_eq!(acquired.denial(), Some(Denial::TooLong));
}

/// Threads that wait and time out at random: in the end no call waits and the counts are right.
#[test]
fn many_threads_and_keys_lose_no_waiter() {
    let limiter = Limiter::new("token-bucket 5000/s burst=5").unwrap();
    let (allowed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (limiter, allowed, refused) = (&limiter, &allowed, &refused);
            scope.spawn(move || {
                for call in 0..200_u64 {
                    let key = (thread * 31 + call * 17) % 5;
                    let acquired = limiter.acquire_within(key, 1, Duration::from_millis(call % 4)).blocking();
                    let count = if acquired.allowed() { allowed } else { refused };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let stats = limiter.stats();
    assert_eq!(allowed.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed), 1_600);
    assert_eq!(stats.allowed, allowed.load(Ordering::Relaxed) as u64);
    assert_eq!(stats.waiting, 0);
}
