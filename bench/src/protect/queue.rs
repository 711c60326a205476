//! Permits that tasks wait for: there are more tasks than permits, and each task yields once while
//! it holds one.

use super::{cpu_nanos, overheads, table};
use crate::measure::{Contender, interleaved};
use sluicegate::semaphore::Semaphore;
use sluicegate_guard::Bulkhead;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, yield_now};

pub(super) const TASKS: u64 = 10_000;
pub(super) const PERMITS: usize = 10;

const ALONE: &str = "tasks that do not wait";
const BULKHEAD: &str = "`Bulkhead::acquire`, for at most a minute";
const SEMAPHORE: &str = "`Semaphore::acquire` on one key";
const SEMAPHORE_TTL: &str = "`Semaphore::acquire` on one key, with ttl";
const SEMAPHORE_WITHIN: &str = "`Semaphore::acquire_within` on one key, a minute";
const TOKIO: &str = "tokio `Semaphore::acquire`";
const TOKIO_WITHIN: &str = "tokio `Semaphore::acquire` in `timeout`, a minute";

pub fn run(rounds: usize) {
    let contenders: Vec<Contender<'_>> = vec![
        (ALONE.to_owned(), Box::new(alone)),
        (SEMAPHORE.to_owned(), Box::new(|| semaphore("concurrency 10"))),
        (SEMAPHORE_TTL.to_owned(), Box::new(|| semaphore("concurrency 10 ttl=30s"))),
        (TOKIO.to_owned(), Box::new(tokio)),
    ];
    let figures = interleaved(contenders, rounds);
    let what = format!("{TASKS} tasks share {PERMITS} permits, per task including its wait");
    table(&what, &figures, &[SEMAPHORE, SEMAPHORE_TTL], &[TOKIO]);
    overheads(&figures, ALONE, &[SEMAPHORE, SEMAPHORE_TTL], TOKIO);

    let contenders: Vec<Contender<'_>> = vec![
        (ALONE.to_owned(), Box::new(alone)),
        (BULKHEAD.to_owned(), Box::new(bulkhead)),
        (SEMAPHORE_WITHIN.to_owned(), Box::new(semaphore_within)),
        (TOKIO_WITHIN.to_owned(), Box::new(tokio_within)),
        (TOKIO.to_owned(), Box::new(tokio)),
    ];
    let figures = interleaved(contenders, rounds);
    let what = format!("{what}, with a bound on the wait");
    table(&what, &figures, &[BULKHEAD, SEMAPHORE_WITHIN], &[TOKIO_WITHIN]);
    overheads(&figures, ALONE, &[BULKHEAD, SEMAPHORE_WITHIN], TOKIO_WITHIN);
}

/// Runs tasks to their ends. What each took.
pub(super) fn timed(spawn: impl FnOnce(&mut JoinSet<()>)) -> f64 {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime of one thread");
    cpu_nanos(TASKS, || {
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            spawn(&mut tasks);
            while let Some(ended) = tasks.join_next().await {
                ended.expect("a task ends");
            }
        });
    })
}

fn alone() -> f64 {
    timed(|tasks| (0..TASKS).for_each(|_| drop(tasks.spawn(yield_now()))))
}

fn bulkhead() -> f64 {
    let text = format!("bulkhead {PERMITS} queue={TASKS} wait=1min");
    let bulkhead = Bulkhead::new(&text).expect("a bulkhead");
    timed(|tasks| {
        for _ in 0..TASKS {
            let bulkhead = bulkhead.clone();
            tasks.spawn(async move {
                let entry = bulkhead.acquire().await;
                assert!(entry.allowed());
                yield_now().await;
            });
        }
    })
}

fn semaphore(limit: &str) -> f64 {
    let semaphore = Semaphore::builder(limit).max_queue(TASKS as usize).build().expect("a semaphore");
    timed(|tasks| {
        for _ in 0..TASKS {
            let semaphore = semaphore.clone();
            tasks.spawn(async move {
                let grant = semaphore.acquire("Harry", 1).await;
                assert!(grant.allowed());
                yield_now().await;
            });
        }
    })
}

fn semaphore_within() -> f64 {
    let semaphore =
        Semaphore::builder("concurrency 10").max_queue(TASKS as usize).build().expect("a semaphore");
    timed(|tasks| {
        for _ in 0..TASKS {
            let semaphore = semaphore.clone();
            tasks.spawn(async move {
                let grant = semaphore.acquire_within("Harry", 1, MINUTE).await;
                assert!(grant.allowed());
                yield_now().await;
            });
        }
    })
}

const MINUTE: Duration = Duration::from_secs(60);

fn tokio() -> f64 {
    let semaphore = Arc::new(tokio::sync::Semaphore::new(PERMITS));
    timed(|tasks| {
        for _ in 0..TASKS {
            let semaphore = Arc::clone(&semaphore);
            tasks.spawn(async move {
                let permit = semaphore.acquire().await;
                assert!(permit.is_ok());
                yield_now().await;
            });
        }
    })
}

fn tokio_within() -> f64 {
    let semaphore = Arc::new(tokio::sync::Semaphore::new(PERMITS));
    timed(|tasks| {
        for _ in 0..TASKS {
            let semaphore = Arc::clone(&semaphore);
            tasks.spawn(async move {
                let permit = tokio::time::timeout(MINUTE, semaphore.acquire()).await;
                assert!(permit.is_ok_and(|permit| permit.is_ok()));
                yield_now().await;
            });
        }
    })
}
