//! Threads and a runtime, on the system's clock.

use super::line_up::Caller;
use sluicegate::clock::TokioClock;
use sluicegate::semaphore::Semaphore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts who is at work, and the most there ever were.
#[derive(Default)]
struct AtWork {
    now: AtomicU64,
    most: AtomicU64,
    times: AtomicU64,
}

impl AtWork {
    fn works(&self, cost: u64, work: impl FnOnce()) {
        let at_work = self.now.fetch_add(cost, Ordering::SeqCst) + cost;
        self.most.fetch_max(at_work, Ordering::SeqCst);
        self.times.fetch_add(1, Ordering::SeqCst);
        work();
        self.now.fetch_sub(cost, Ordering::SeqCst);
    }
}

#[test]
fn threads_are_never_more_at_work_than_may_and_all_have_their_turns() {
    for limit in ["concurrency 3", "concurrency 3 ttl=1h"] {
        let (semaphore, at_work) = (Semaphore::new(limit).unwrap(), Arc::new(AtWork::default()));
        let threads: Vec<_> = (0..8_u64)
            .map(|thread| {
                let (semaphore, at_work) = (semaphore.clone(), Arc::clone(&at_work));
                std::thread::spawn(move || {
                    for turn in 0..500 {
                        let cost = (thread + turn) % 3 + 1;
                        let lease = match (thread + turn) % 4 {
                            0 => semaphore.try_acquire("k", cost).lease(),
                            1 => semaphore
                                .acquire_within("k", cost, Duration::from_micros(50))
                                .blocking()
                                .lease(),
                            _ => semaphore.acquire("k", cost).blocking().lease(),
                        };
                        if lease.is_some() {
                            at_work.works(cost, std::thread::yield_now);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let most = at_work.most.load(Ordering::SeqCst);
        assert!((1..=3).contains(&most), "{most} at once");
        assert!(at_work.times.load(Ordering::SeqCst) >= 2_000, "whoever waits for ever has its turn");
        assert!(semaphore.try_acquire("k", 3).allowed(), "all places are free");
        let stats = semaphore.stats();
        assert_eq!((stats.leases, stats.keys, stats.waiting), (0, 0, 0));
        assert_eq!(stats.allowed, stats.released);
    }
}

#[test]
fn tasks_of_a_runtime_wait_and_are_cancelled_and_nothing_is_lost() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let (semaphore, at_work) = (Semaphore::new("concurrency 4").unwrap(), Arc::new(AtWork::default()));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..400_u64)
            .map(|task| {
                // The future borrows nothing, and so is spawned as it is.
                let (acquire, at_work) = (semaphore.acquire("k", task % 4 + 1), Arc::clone(&at_work));
                tokio::spawn(async move {
                    let lease = acquire.await.lease();
                    tokio::task::yield_now().await;
                    at_work.works(task % 4 + 1, || drop(lease));
                })
            })
            .collect();
        for (number, task) in tasks.into_iter().enumerate() {
            if number % 3 == 0 {
                task.abort();
            }
            let _ = task.await;
        }
    });
    assert!(semaphore.try_acquire("k", 4).allowed());
    assert_eq!((semaphore.stats().waiting, semaphore.stats().leases), (0, 0));
    assert!(at_work.times.load(Ordering::SeqCst) >= 266);
}

#[test]
fn a_lease_lapses_in_real_time_and_wakes_who_waits_for_it() {
    let semaphore = Semaphore::new("concurrency 1 ttl=20ms").unwrap();
    let began = Instant::now();
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let grant = semaphore.acquire("k", 1).blocking();
    assert!(grant.allowed() && began.elapsed() >= Duration::from_millis(15), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_paused_runtime_holds_leases_too() {
    let semaphore = Semaphore::builder("concurrency 1 ttl=1h").clock(TokioClock::new()).build().unwrap();
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let grant = semaphore.acquire("k", 1).await;
    assert!(grant.allowed() && grant.waited() >= Duration::from_secs(3_599));
}

#[test]
fn when_a_runtime_ends_those_who_wait_go_on_in_another() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let semaphore = Semaphore::builder("concurrency 1 ttl=1s").clock(TokioClock::new()).build().unwrap();
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let first = runtime();
    let mut waiting = first.block_on(async { Caller::new(semaphore.acquire("k", 1)) });
    assert_eq!(waiting.woken(), 0);
    drop(first);
    assert_eq!(waiting.woken(), 1, "its alarm is lost, and it has to look");
    runtime().block_on(async {
        while !waiting.poll() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(waiting.allowed());
}
