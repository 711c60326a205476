//! "The cost of a call is known only when it is over: LLM tokens, bytes. How can it be limited?"
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, RetryAfter};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = "token-bucket 10000/min";
    let tokens = Limiter::builder(limit).clock(ManualClock::default()).build()?;
    let left = || tokens.peek("tenant:acme", 0).remaining();
    let max_wait = Duration::ZERO;

    // Reserve the maximum, so that calls in flight cannot spend the same tokens. Then settle.
    let prompt = tokens.reserve("tenant:acme", 4_000, max_wait)?;
    assert!(prompt.allowed());
    println!("4000 reserved, {} left", left());
    assert!(prompt.settle(1_500));
    println!("1500 used, {} left", left());
    assert_eq!(left(), 8_500);

    // The call failed: cancel. The receipt is text, so another part of the service can do it.
    let receipt = tokens.reserve("tenant:acme", 4_000, max_wait)?.keep().ok_or("denied")?.to_string();
    assert!(tokens.cancel(&receipt.parse()?));
    assert!(!tokens.cancel(&receipt.parse()?), "a receipt works once");
    println!("4000 reserved and cancelled, {} left", left());
    assert_eq!(left(), 8_500);

    // More was used than reserved: the excess is debt, which has to recover before the next call.
    assert!(tokens.reserve("tenant:acme", 8_000, max_wait)?.settle(9_500));
    let Some(RetryAfter::After(wait)) = tokens.check("tenant:acme").retry_after() else {
        return Err("the debt should deny the next call".into());
    };
    println!("9500 used where 8000 were reserved, {} left; the next token is available in {wait}", left());
    Ok(())
}
