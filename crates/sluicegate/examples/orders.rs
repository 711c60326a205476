//! "A shopper may place one order every 30 minutes, however often they click."
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::default();
    let orders = Limiter::builder("min-interval 30min").clock(clock.clone()).build()?;

    let mut placed = Vec::new();
    for minute in 0..=65 {
        if orders.check(("shopper", 7)).allowed() {
            println!("minute {minute:2}: order placed");
            placed.push(minute);
        } else if minute % 10 == 0 {
            let answer = orders.peek(("shopper", 7), 1);
            println!("minute {minute:2}: not yet, {} to go", answer.reset_after());
        }
        clock.advance(Duration::from_secs(60));
    }
    assert_eq!(placed, [0, 30, 60]);

    // The payment failed, so the order is refunded, and the shopper may retry immediately.
    clock.advance(Duration::from_secs(30 * 60));
    assert!(orders.check(("shopper", 7)).allowed());
    let _ = orders.refund(("shopper", 7), 1)?;
    assert!(orders.check(("shopper", 7)).allowed());
    println!("A payment failed, and the shopper could retry immediately.");
    Ok(())
}
