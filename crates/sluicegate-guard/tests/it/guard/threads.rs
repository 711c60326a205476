//! One guard in many threads: breaker, queue, timeout, retries, fallbacks and dropped calls
//! together.

use sluicegate_guard::breaker::State;
use sluicegate_guard::guard::{Failure, Guard};
use sluicegate_guard::{Clock as _, ManualClock};
use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const LIMIT: u64 = 3;
const THREADS: u64 = 6;
const ROUNDS: u64 = 1_000;

/// What the calls themselves have seen.
#[derive(Default)]
struct Seen {
    at_work: AtomicU64,
    begun: AtomicU64,
    well: AtomicU64,
    failed: AtomicU64,
    /// Calls that were dropped: in the queue, and at work.
    dropped_before: AtomicU64,
    dropped_within: AtomicU64,
    fell_back: AtomicU64,
}

/// A call is in flight until this is dropped.
struct AtWork<'a>(&'a Seen);

impl Seen {
    fn begins(&self) -> AtWork<'_> {
        let others = self.at_work.fetch_add(1, Ordering::SeqCst);
        assert!(others < LIMIT, "{others} others are at work");
        count(&self.begun);
        AtWork(self)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::SeqCst);
    }
}

fn count(number: &AtomicU64) {
    number.fetch_add(1, Ordering::SeqCst);
}

/// Pending once, and woken at once.
async fn let_others_run() {
    let mut is_back = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut is_back, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

fn goes_well(guard: &Guard, seen: &Seen) {
    let answer = guard.call(|| async {
        let _at_work = seen.begins();
        thread::yield_now();
        let_others_run().await;
        count(&seen.well);
        Ok::<_, ()>(())
    });
    let _ = answer.blocking();
}

fn fails(guard: &Guard, seen: &Seen) {
    let call = guard.call(|| async {
        let _at_work = seen.begins();
        count(&seen.failed);
        Err::<u8, _>(())
    });
    let answer = call.fallback(|why| async move {
        assert_ne!(why, Failure::BadResult);
        count(&seen.fell_back);
        thread::yield_now();
        7
    });
    assert!(matches!(answer.blocking(), Ok(7) | Err(Failure::Failed(()) | Failure::Denied(_))));
}

fn hangs(guard: &Guard, seen: &Seen) {
    let answer = guard.call(|| async {
        let _at_work = seen.begins();
        std::future::pending::<Result<(), ()>>().await
    });
    assert!(matches!(answer.blocking(), Err(Failure::TimedOut | Failure::Denied(_))));
}

fn is_dropped(guard: &Guard, seen: &Seen) {
    let has_begun = AtomicBool::new(false);
    let mut call = pin!(guard.call(|| async {
        has_begun.store(true, Ordering::SeqCst);
        let _at_work = seen.begins();
        std::future::pending::<Result<(), ()>>().await
    }));
    if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        let begun = has_begun.load(Ordering::SeqCst);
        count(if begun { &seen.dropped_within } else { &seen.dropped_before });
    }
}

#[test]
fn the_limit_holds_and_the_totals_add_up() {
    let clock = ManualClock::default();
    let guard = Guard::builder("g")
        .bulkhead("bulkhead 3 queue=2 wait=5ms")
        .breaker("breaker 80%/10calls open=2ms")
        .timeout(10 * MS)
        .retry("retry 1 budget=50% backoff=2ms")
        .max_fallbacks(1)
        .clock(clock.clone())
        .build()
        .unwrap();
    let (seen, at_work) = (Seen::default(), AtomicU64::new(THREADS));
    let all_are_there = Barrier::new(usize::try_from(THREADS).unwrap());
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (guard, seen, at_work, all_are_there) = (&guard, &seen, &at_work, &all_are_there);
            scope.spawn(move || {
                all_are_there.wait();
                for round in 0..ROUNDS {
                    match (number + round) % 8 {
                        0 => fails(guard, seen),
                        1 => hangs(guard, seen),
                        2 => is_dropped(guard, seen),
                        _ => goes_well(guard, seen),
                    }
                    // Otherwise most rounds would be denials.
                    while guard.breaker().unwrap().peek().is_some() {
                        thread::yield_now();
                    }
                }
                at_work.fetch_sub(1, Ordering::SeqCst);
            });
        }
        // Time passes until all are done.
        while at_work.load(Ordering::SeqCst) > 0 {
            clock.advance(MS / 5);
            thread::yield_now();
        }
    });
    let bulkhead = guard.bulkhead().unwrap().stats();
    assert_eq!((bulkhead.in_use, bulkhead.waiting), (0, 0), "{bulkhead:?}");
    let (stats, read) = (guard.stats(), |number: &AtomicU64| number.load(Ordering::SeqCst));
    let name = format!("{stats:?}");
    assert_eq!((stats.calls, stats.allowed), (THREADS * ROUNDS, read(&seen.begun)), "{name}");
    assert_eq!((stats.failed, stats.fell_back), (read(&seen.failed), read(&seen.fell_back)), "{name}");
    // Every try that has begun went well, failed, took too long, or was dropped.
    let ended = read(&seen.well) + stats.failed + stats.timed_out + read(&seen.dropped_within);
    assert_eq!(stats.allowed, ended, "{name}");
    // Every call and every retry was an attempt or a denial, except those dropped in the queue.
    let asked = stats.calls + stats.retried - read(&seen.dropped_before);
    assert_eq!(stats.allowed + stats.denied, asked, "{name}");
    assert!(
        [stats.failed, stats.timed_out, stats.denied, stats.retried].iter().all(|&count| count > 0),
        "{name}"
    );
    // Whatever it is now, it is not stuck.
    let before = clock.now();
    while guard.breaker().unwrap().state() != State::Closed {
        clock.advance(5 * MS);
        goes_well(&guard, &seen);
        assert!(Duration::from(clock.now().since(before)) < Duration::from_secs(1), "the breaker is stuck");
    }
}
