//! In tokio: paused time, aborted tasks, and a runtime that shuts down.

use sluicegate::Limiter;
use sluicegate::clock::TokioClock;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::Instant;

fn paused<F: Future>(run: F) -> F::Output {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(run)
}

#[test]
fn waiters_follow_paused_time() {
    paused(async {
        let limiter = Limiter::builder("min-interval 1h").clock(TokioClock::new()).build().unwrap();
        let began = Instant::now();
        for _ in 0..25 {
            assert!(limiter.acquire("k", 1).await.allowed());
        }
        assert_eq!(began.elapsed().as_secs(), 24 * 3_600);
    });
}

#[test]
fn aborted_tasks_do_not_block_the_queue() {
    paused(async {
        let limiter = Limiter::builder("min-interval 1s").clock(TokioClock::new()).build().unwrap();
        let limiter = Arc::new(limiter);
        assert!(limiter.check("k").allowed());
        let began = Instant::now();
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move {
                    assert!(limiter.acquire("k", 1).await.allowed());
                    Instant::now()
                })
            })
            .collect();
        while limiter.stats().waiting < 100 {
            tokio::task::yield_now().await;
        }
        for (number, task) in tasks.iter().enumerate() {
            if number % 10 != 9 {
                task.abort();
            }
        }
        let mut times = Vec::new();
        for task in tasks {
            if let Ok(at) = task.await {
                times.push((at - began).as_millis());
            }
        }
        let expected: Vec<u128> = (1..=10).map(|second| second * 1_000).collect();
        // Tokio counts milliseconds, and rounds up.
        let close = |(time, expected): (&u128, &u128)| (*expected..=expected + 2).contains(time);
        assert!(times.len() == 10 && times.iter().zip(&expected).all(close), "{times:?}");
    });
}

/// The runtime that would have rung the alarm shuts down. A waiter in another sets a new one.
#[test]
fn waiters_survive_the_end_of_another_runtime() {
    let limiter = Limiter::builder("min-interval 50ms").clock(TokioClock::new()).build().unwrap();
    let limiter = Arc::new(limiter);
    let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
    assert!(limiter.check("k").allowed());
    let (first, second) = (runtime(), runtime());
    let waits = {
        let limiter = Arc::clone(&limiter);
        first.spawn(async move { limiter.acquire("k", 1).await })
    };
    first.block_on(tokio::task::yield_now());
    assert_eq!(limiter.stats().waiting, 1);
    let other = Arc::clone(&limiter);
    let other = second.spawn(async move { other.acquire("k", 1).await });
    second.block_on(tokio::task::yield_now());
    drop(first);
    assert!(!waits.is_finished() || limiter.stats().waiting == 1);
    let other = second.block_on(async { tokio::time::timeout(Duration::from_secs(20), other).await });
    assert!(other.unwrap().unwrap().allowed());
}

/// With the system clock, in tasks on several threads.
#[test]
fn the_timer_wakes_tasks_of_any_runtime() {
    let runtime = Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let limiter = Arc::new(Limiter::new("token-bucket 1000/s burst=1").unwrap());
    let allowed = runtime.block_on(async {
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move { limiter.acquire("k", 1).await.allowed() })
            })
            .collect();
        let mut allowed = 0;
        for task in tasks {
            allowed += u32::from(task.await.unwrap());
        }
        allowed
    });
    assert_eq!(allowed, 50);
}
