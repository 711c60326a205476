//! Timeouts, by any clock and in any runtime.

use super::polling::{Polled, sleep};
use sluicegate::clock::TokioClock;
use sluicegate_guard::guard::{Failure, Guard};
use sluicegate_guard::{ManualClock, TimedOut, timeout, timeout_on};
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_call_that_times_out_is_dropped() {
    let clock = ManualClock::default();
    let held = Arc::new(());
    let slow = {
        let (clock, held) = (clock.clone(), Arc::clone(&held));
        async move {
            sleep(&clock, 11 * MS).await;
            drop(held);
        }
    };
    let mut call = Polled::new(timeout_on(clock.clone(), 10 * MS, slow));
    assert_eq!(call.run(&clock, MS), Err(TimedOut));
    assert_eq!(Arc::strong_count(&held), 1);
    let mut quick = Polled::new(timeout_on(clock.clone(), 10 * MS, sleep(&clock, 10 * MS)));
    assert_eq!(quick.run(&clock, MS), Ok(()), "just in time");
}

#[test]
fn it_needs_no_runtime_and_follows_a_paused_one() {
    let answer = Guard::builder("g").timeout(5 * MS).build().unwrap();
    assert_eq!(answer.call(std::future::pending::<Result<u8, ()>>).blocking(), Err(Failure::TimedOut));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let builder = Guard::builder("g").timeout(Duration::from_secs(3_600)).clock(TokioClock::new());
        let guard = builder.build().unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(guard.call(std::future::pending::<Result<u8, ()>>).await, Err(Failure::TimedOut));
        assert_eq!(began.elapsed().as_secs(), 3_600);
    });
    assert_eq!(runtime.block_on(timeout(Duration::from_secs(60), async { 7 })), Ok(7));
}
