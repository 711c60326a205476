//! Threads and a runtime, with the system clock.

use super::caller::Caller;
use sluicegate::clock::TokioClock;
use sluicegate::semaphore::Semaphore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts the calls in progress, and their maximum.
#[derive(Default)]
struct InProgress {
    now: AtomicU64,
    most: AtomicU64,
    times: AtomicU64,
}

impl InProgress {
    fn works(&self, cost: u64, work: impl FnOnce()) {
        let in_progress = self.now.fetch_add(cost, Ordering::SeqCst) + cost;
        self.most.fetch_max(in_progress, Ordering::SeqCst);
        self.times.fetch_add(1, Ordering::SeqCst);
        work();
        self.now.fetch_sub(cost, Ordering::SeqCst);
    }
}

#[test]
fn threads_never_exceed_the_limit_and_all_finish() {
    for limit in ["concurrency 3", "concurrency 3 ttl=1h"] {
        let (semaphore, in_progress) = (Semaphore::new(limit).unwrap(), Arc::new(InProgress::default()));
        let threads: Vec<_> = (0..8_u64)
            .map(|thread| {
                let (semaphore, in_progress) = (semaphore.clone(), Arc::clone(&in_progress));
                std::thread::spawn(move || {
                    for round in 0..500 {
                        let cost = (thread + round) % 3 + 1;
                        let lease = match (thread + round) % 4 {
                            0 => semaphore.try_acquire("k", cost).lease(),
                            1 => semaphore
                                .acquire_within("k", cost, Duration::from_micros(50))
                                .blocking()
                                .lease(),
                            _ => semaphore.acquire("k", cost).blocking().lease(),
                        };
                        if lease.is_some() {
                            in_progress.works(cost, std::thread::yield_now);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let most = in_progress.most.load(Ordering::SeqCst);
        assert!((1..=3).contains(&most), "{most} at once");
        assert!(in_progress.times.load(Ordering::SeqCst) >= 2_000, "a call without a deadline is granted");
        assert!(semaphore.try_acquire("k", 3).allowed(), "all permits are free");
        let stats = semaphore.stats();
        assert_eq!((stats.leases, stats.keys, stats.waiting), (0, 0, 0));
        assert_eq!(stats.allowed, stats.released);
    }
}

#[test]
fn cancelled_tasks_lose_no_permit() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let (semaphore, in_progress) =
        (Semaphore::new("concurrency 4").unwrap(), Arc::new(InProgress::default()));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..400_u64)
            .map(|task| {
                // The future borrows nothing, so it can be spawned.
                let (acquire, in_progress) = (semaphore.acquire("k", task % 4 + 1), Arc::clone(&in_progress));
                tokio::spawn(async move {
                    let lease = acquire.await.lease();
                    tokio::task::yield_now().await;
                    in_progress.works(task % 4 + 1, || drop(lease));
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
    assert!(in_progress.times.load(Ordering::SeqCst) >= 266);
}

#[test]
fn a_lease_expires_in_real_time_and_wakes_its_waiter() {
    let semaphore = Semaphore::new("concurrency 1 ttl=20ms").unwrap();
    let began = Instant::now();
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let grant = semaphore.acquire("k", 1).blocking();
    assert!(grant.allowed() && began.elapsed() >= Duration::from_millis(15), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn leases_follow_paused_time() {
    let semaphore = Semaphore::builder("concurrency 1 ttl=1h").clock(TokioClock::new()).build().unwrap();
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let grant = semaphore.acquire("k", 1).await;
    assert!(grant.allowed() && grant.waited() >= Duration::from_secs(3_599));
}

#[test]
fn waiters_survive_the_end_of_another_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let semaphore = Semaphore::builder("concurrency 1 ttl=1s").clock(TokioClock::new()).build().unwrap();
    let _ = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let first = runtime();
    let mut waiting = first.block_on(async { Caller::new(semaphore.acquire("k", 1)) });
    assert_eq!(waiting.woken(), 0);
    drop(first);
    assert_eq!(waiting.woken(), 1, "its alarm is lost, so it has to poll");
    runtime().block_on(async {
        while !waiting.poll() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(waiting.allowed());
}
