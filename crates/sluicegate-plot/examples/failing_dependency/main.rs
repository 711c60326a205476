//! A service whose dependency slows down and fails for a while: without protection, with a guard,
//! and a picture of both. `cargo run -p sluicegate-plot --example failing_dependency --
//! picture.svg`

mod stage;

use sluicegate::clock::TokioClock;
use sluicegate_guard::guard::{Failure, Guard};
use stage::{Bank, Ended, Stage, TIMEOUT};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut stage = Stage::default();
    let bare = stage.play("without protection", |bank: Bank| async move { bank.pay().await }).await;

    let payments = Guard::builder("bank")
        .breaker("breaker 50%/10s")
        .bulkhead("gradient 20 min=5")
        .timeout(TIMEOUT)
        .clock(TokioClock::new())
        .build()?;
    let guarded = |bank: Bank| {
        let payments = payments.clone();
        async move {
            payments.call(|| bank.pay()).await.map_err(|why| match why {
                Failure::Failed(ended) => ended,
                Failure::TimedOut => Ended::TimedOut,
                _ => Ended::Denied,
            })
        }
    };
    let protected = stage.play("breaker 50%/10s + gradient 20 min=5", guarded).await;

    assert!(protected.good > 2 * bare.good, "{protected:?} and {bare:?}");
    assert!(payments.breaker().is_some_and(|breaker| breaker.stats().totals.opened > 0));
    stage.draw(std::env::args_os().nth(1))
}
