//! "The provider accepts five mails per second." Eight threads wait in a queue; one mail is urgent,
//! and one cannot wait.
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use sluicegate::wait::{Denial, Priority};
use sluicegate::{BuildError, Gate};
use std::time::{Duration, Instant};

fn main() -> Result<(), BuildError> {
    let provider = Gate::new("pacer 5/s queue=20")?;
    let started = Instant::now();
    let log = |what: &str| println!("{:4} ms  {what}", started.elapsed().as_millis());
    std::thread::scope(|scope| {
        let (provider, log) = (&provider, &log);
        for mail in 1..=8 {
            scope.spawn(move || {
                assert!(provider.acquire(1).blocking().allowed());
                log(&format!("mail {mail} leaves"));
            });
            // One after another, so that they are enqueued in this order.
            while provider.stats().allowed + provider.stats().waiting as u64 != mail {
                std::thread::yield_now();
            }
        }
        scope.spawn(move || {
            assert!(provider.acquire(1).priority(Priority::High).blocking().allowed());
            log("the urgent mail leaves");
        });
        let acquired = provider.acquire_within(1, Duration::from_millis(500)).blocking();
        assert_eq!(acquired.denial(), Some(Denial::TooLong));
        log("the mail that cannot wait is denied immediately");
    });
    Ok(())
}
