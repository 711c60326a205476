//! "A user may reply 5 times in any 60 seconds. What happens to 20 replies at once?"
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, RetryAfter};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A service leaves the clock out: `Limiter::new("sliding-log 5/60s")`.
    let clock = ManualClock::default();
    let replies = Limiter::builder("sliding-log 5/60s").clock(clock.clone()).build()?;

    let sent = (0..20).filter(|_| replies.check("user:42").allowed()).count();
    println!("20 replies at once: {sent} are sent, {} are not.", 20 - sent);
    assert_eq!(sent, 5);

    // The limit is per key.
    assert!(replies.check("user:43").allowed());
    println!("Other users are not affected.");

    // A denial costs nothing, so retries do not extend the wait.
    let Some(RetryAfter::After(wait)) = replies.check("user:42").retry_after() else {
        return Err("the call should be denied".into());
    };
    println!("The user may reply again in {wait}.");
    clock.advance(wait.into());
    assert!(replies.check("user:42").allowed());

    // One microsecond earlier is too early.
    replies.reset("user:42");
    (0..5).for_each(|_| assert!(replies.check("user:42").allowed()));
    clock.advance(Duration::from_micros(wait.as_micros() - 1));
    assert!(!replies.check("user:42").allowed());
    println!("The wait is exact: one microsecond earlier the call is denied.");
    Ok(())
}
