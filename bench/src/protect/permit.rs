//! A free permit, taken and released at once.

use super::{cpu_nanos, cpu_nanos_of_two, table};
use crate::measure::{Contender, interleaved};
use sluicegate_guard::Bulkhead;
use std::hint::black_box;
use std::sync::Arc;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::unconstrained;

const CALLS: u64 = 200_000;

const TRY_OURS: &str = "`Bulkhead::try_acquire`";
const TRY: &str = "tokio `Semaphore::try_acquire`, borrowed";
const TRY_OWNED: &str = "tokio `Semaphore::try_acquire_owned`";
const OURS: &str = "`Bulkhead::acquire`";
const BORROWED: &str = "tokio `Semaphore::acquire`, borrowed";
const OWNED: &str = "tokio `Semaphore::acquire_owned`";

pub fn run(rounds: usize) {
    let bulkhead = Bulkhead::new("bulkhead 10 queue=5").expect("a bulkhead");
    let semaphore = Arc::new(Semaphore::new(10));
    let try_ours = || {
        for _ in 0..CALLS {
            assert!(black_box(&bulkhead).try_acquire().is_some());
        }
    };
    let try_borrowed = || {
        for _ in 0..CALLS {
            assert!(black_box(&semaphore).try_acquire().is_ok());
        }
    };
    let try_owned = || {
        for _ in 0..CALLS {
            assert!(Arc::clone(black_box(&semaphore)).try_acquire_owned().is_ok());
        }
    };
    let contenders: Vec<Contender<'_>> = vec![
        (TRY_OURS.to_owned(), Box::new(|| cpu_nanos(CALLS, try_ours))),
        (TRY.to_owned(), Box::new(|| cpu_nanos(CALLS, try_borrowed))),
        (TRY_OWNED.to_owned(), Box::new(|| cpu_nanos(CALLS, try_owned))),
    ];
    let figures = interleaved(contenders, rounds);
    table("Take a permit without waiting and release it", &figures, &[TRY_OURS], &[TRY, TRY_OWNED]);

    let contenders: Vec<Contender<'_>> = vec![
        (TRY_OURS.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, try_ours))),
        (TRY.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, try_borrowed))),
        (TRY_OWNED.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, try_owned))),
    ];
    let figures = interleaved(contenders, rounds);
    table("The same, two threads at once", &figures, &[TRY_OURS], &[TRY, TRY_OWNED]);

    // Without tokio's budget, which has a task step back now and then.
    let runtime = Builder::new_current_thread().build().expect("a runtime of one thread");
    let ours = || {
        runtime.block_on(unconstrained(async {
            for _ in 0..CALLS {
                assert!(black_box(&bulkhead).acquire().await.allowed());
            }
        }));
    };
    let borrowed = || {
        runtime.block_on(unconstrained(async {
            for _ in 0..CALLS {
                assert!(black_box(&semaphore).acquire().await.is_ok());
            }
        }));
    };
    let owned = || {
        runtime.block_on(unconstrained(async {
            for _ in 0..CALLS {
                assert!(Arc::clone(black_box(&semaphore)).acquire_owned().await.is_ok());
            }
        }));
    };
    let contenders: Vec<Contender<'_>> = vec![
        (OURS.to_owned(), Box::new(|| cpu_nanos(CALLS, ours))),
        (BORROWED.to_owned(), Box::new(|| cpu_nanos(CALLS, borrowed))),
        (OWNED.to_owned(), Box::new(|| cpu_nanos(CALLS, owned))),
    ];
    let figures = interleaved(contenders, rounds);
    table("Await a free permit", &figures, &[OURS], &[BORROWED, OWNED]);
}
