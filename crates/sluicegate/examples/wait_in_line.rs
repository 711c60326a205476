//! "The provider takes five mails a second." Eight threads wait in line, one mail is urgent, one cannot wait.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use sluicegate::wait::{Denial, Priority};
use sluicegate::{BuildError, Gate};
use std::time::{Duration, Instant};

fn main() -> Result<(), BuildError> {
    let provider = Gate::new("pacer 5/s queue=20")?;
    let began = Instant::now();
    let says = |what: &str| println!("{:4} ms  {what}", began.elapsed().as_millis());
    std::thread::scope(|scope| {
        let (provider, says) = (&provider, &says);
        for mail in 1..=8 {
            scope.spawn(move || {
                assert!(provider.acquire(1).blocking().allowed());
                says(&format!("mail {mail} leaves"));
            });
            // One after another, so that they line up in this order.
            while provider.stats().allowed + provider.stats().waiting as u64 != mail {
                std::thread::yield_now();
            }
        }
        scope.spawn(move || {
            assert!(provider.acquire(1).priority(Priority::High).blocking().allowed());
            says("the urgent mail leaves");
        });
        let turn = provider.acquire_within(1, Duration::from_millis(500)).blocking();
        assert_eq!(turn.denial(), Some(Denial::TooLong));
        says("one that cannot wait is told at once");
    });
    Ok(())
}
