//! In tokio: paused time, tasks that are aborted, and a runtime that ends.

use sluicegate::clock::TokioClock;
use sluicegate_guard::{Bulkhead, Denial};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

fn paused<F: Future>(run: F) -> F::Output {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(run)
}

fn bulkhead(text: &str) -> Bulkhead {
    Bulkhead::builder(text).clock(TokioClock::new()).build().unwrap()
}

#[test]
fn waiters_are_admitted_as_permits_are_released() {
    paused(async {
        let bulkhead = bulkhead("bulkhead 2 queue=10 wait=1min");
        let began = Instant::now();
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let bulkhead = bulkhead.clone();
                tokio::spawn(async move {
                    let entry = bulkhead.acquire().await;
                    assert!(entry.allowed());
                    sleep(Duration::from_secs(10)).await;
                    drop(entry);
                    Instant::now()
                })
            })
            .collect();
        let mut ends = Vec::new();
        for task in tasks {
            ends.push((task.await.unwrap() - began).as_secs());
        }
        assert_eq!(ends, [10, 10, 20, 20, 30, 30]);
    });
}

#[test]
fn waits_end_in_paused_time_too() {
    paused(async {
        let bulkhead = bulkhead("bulkhead 1 queue=10 wait=1min");
        let _permit = bulkhead.try_acquire();
        let began = Instant::now();
        let entry = bulkhead.acquire().await;
        assert_eq!((entry.denial(), began.elapsed().as_secs()), (Some(Denial::TooLong), 60));
    });
}

#[test]
fn aborted_tasks_do_not_block_others() {
    paused(async {
        let bulkhead = bulkhead("bulkhead 1 queue=100 wait=1min");
        let permit = bulkhead.try_acquire();
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let bulkhead = bulkhead.clone();
                tokio::spawn(async move { bulkhead.acquire().await.allowed() })
            })
            .collect();
        while bulkhead.stats().waiting < 100 {
            tokio::task::yield_now().await;
        }
        for task in tasks.iter().step_by(2) {
            task.abort();
        }
        drop(permit);
        let mut allowed = 0;
        for task in tasks {
            allowed += usize::from(task.await.unwrap_or(false));
        }
        assert_eq!((allowed, bulkhead.stats().in_use), (50, 0));
    });
}

/// The runtime whose task would have rung shuts down. A waiter in another thread sets a new alarm.
#[test]
fn a_runtime_shutdown_loses_no_alarm() {
    let bulkhead = bulkhead("bulkhead 1 queue=10 wait=100ms");
    let _permit = bulkhead.try_acquire();
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let task = runtime.spawn({
        let bulkhead = bulkhead.clone();
        async move { bulkhead.acquire().await }
    });
    runtime.block_on(tokio::task::yield_now());
    assert_eq!(bulkhead.stats().waiting, 1);
    let other = std::thread::spawn({
        let bulkhead = bulkhead.clone();
        move || bulkhead.acquire().blocking().denial()
    });
    while bulkhead.stats().waiting < 2 {
        std::thread::yield_now();
    }
    drop((task, runtime));
    assert_eq!(other.join().unwrap(), Some(Denial::TooLong));
}
