//! "I know what a call costs only when it is over: LLM tokens, bytes. How can I limit that?"
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, RetryAfter};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = "token-bucket 10000/min";
    let tokens = Limiter::builder(limit).clock(ManualClock::default()).build()?;
    let left = || tokens.peek("team-1", 0).remaining();
    let at_once = Duration::ZERO; // how long we would wait for our turn

    // Reserve the most it can be, so that calls under way cannot spend the same tokens. Then say what it was.
    let prompt = tokens.reserve("team-1", 4_000, at_once)?;
    assert!(prompt.allowed());
    println!("4000 reserved, {} left", left());
    assert!(prompt.settle(1_500));
    println!("1500 used, {} left", left());
    assert_eq!(left(), 8_500);

    // It came to nothing: cancel. The receipt is text, so another part of the service can do it.
    let receipt = tokens.reserve("team-1", 4_000, at_once)?.keep().ok_or("denied")?.to_string();
    assert!(tokens.cancel(&receipt.parse()?));
    assert!(!tokens.cancel(&receipt.parse()?), "a receipt is good for one time");
    println!("4000 reserved and cancelled, {} left", left());
    assert_eq!(left(), 8_500);

    // It came to more than was reserved: the excess is debt, and the next calls wait for it to be paid back.
    assert!(tokens.reserve("team-1", 8_000, at_once)?.settle(9_500));
    let Some(RetryAfter::After(wait)) = tokens.check("team-1").retry_after() else {
        return Err("a debt should have to be paid back".into());
    };
    println!("9500 used where 8000 were reserved, {} left; the next token comes in {wait}", left());
    Ok(())
}
