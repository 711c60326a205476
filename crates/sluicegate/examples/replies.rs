//! "A user may reply 5 times a minute, in any minute. What becomes of 20 replies at once?"
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, RetryAfter};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A service leaves the clock out: `Limiter::new("sliding-log 5/60s")`.
    let clock = ManualClock::default();
    let replies = Limiter::builder("sliding-log 5/60s").clock(clock.clone()).build()?;

    let sent = (0..20).filter(|_| replies.check("Harry").allowed()).count();
    println!("Harry tries 20 replies at once: {sent} are sent, {} are not.", 20 - sent);
    assert_eq!(sent, 5);

    // Everyone has a limit of their own.
    assert!(replies.check("Sally").allowed());
    println!("Sally replies as if Harry were not there.");

    // A denial costs nothing, so trying again and again does not make the wait longer.
    let Some(RetryAfter::After(wait)) = replies.check("Harry").retry_after() else {
        return Err("Harry should have to wait".into());
    };
    println!("Harry may reply again in {wait}.");
    clock.advance(wait.into());
    assert!(replies.check("Harry").allowed());

    // One microsecond sooner would have been too soon.
    replies.reset("Harry");
    (0..5).for_each(|_| assert!(replies.check("Harry").allowed()));
    clock.advance(Duration::from_micros(wait.as_micros() - 1));
    assert!(!replies.check("Harry").allowed());
    println!("The wait is exact: one microsecond sooner the answer is still no.");
    Ok(())
}
