//! Ten mails for a provider that takes five a second: eight threads wait in line, one is in a hurry, one gives up.
//!
//! ```text
//! cargo run -p sluicegate --example wait_in_line
//! ```

use sluicegate::{BuildError, Gate, Priority};
use std::time::{Duration, Instant};

fn main() -> Result<(), BuildError> {
    let provider = Gate::new("pacer 5/s queue=20")?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for mail in 1..=8 {
            let provider = &provider;
            scope.spawn(move || {
                let turn = provider.acquire(1).blocking();
                assert!(turn.allowed());
                println!("{:4} ms  mail {mail} leaves", began.elapsed().as_millis());
            });
            // One after another, so that they line up in this order.
            while provider.stats().allowed + (provider.stats().waiting as u64) < mail {
                std::thread::yield_now();
            }
        }
        scope.spawn(|| {
            let turn = provider.acquire(1).priority(Priority::High).blocking();
            assert!(turn.allowed());
            println!("{:4} ms  the urgent mail leaves", began.elapsed().as_millis());
        });
        let turn = provider.acquire_within(1, Duration::from_millis(500)).blocking();
        if let Some(refusal) = turn.refusal() {
            println!("{:4} ms  one that cannot wait is told at once: {refusal}", began.elapsed().as_millis());
        }
    });
    Ok(())
}
