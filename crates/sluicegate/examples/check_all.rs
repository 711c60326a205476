//! "A call must be within the limits of the user, the address and the site, or count for none."
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use sluicegate::clock::ManualClock;
use sluicegate::{Gate, Limiter, check_all};
use std::net::Ipv4Addr;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::default();
    let users = Limiter::builder("sliding-log 5/60s").clock(clock.clone()).build()?;
    let addresses = Limiter::builder("token-bucket 10/s burst=8").clock(clock.clone()).build()?;
    let site = Limiter::builder("fixed-window 1000/day").clock(clock).build_gate()?;
    let names = ["the user's limit", "the address's limit", "the site's limit"];

    let office = Ipv4Addr::new(203, 0, 113, 9);
    let visit = |user: &str, site: &Gate| {
        let decision = check_all(&[users.call(user, 1), addresses.call(office, 1), site.call(1)]);
        decision.map(|decision| decision.denied_call().map(|index| names[index as usize]))
    };
    // Two users behind one address, six calls each.
    let mut answers = Vec::new();
    for user in ["user:42", "user:43"] {
        for _ in 0..6 {
            let denied_by = visit(user, &site)?;
            println!("{user}: {}", denied_by.unwrap_or("allowed"));
            answers.push(denied_by);
        }
    }
    assert_eq!(answers.iter().filter(|denied_by| denied_by.is_none()).count(), 8);
    assert_eq!((answers[5], answers[9]), (Some(names[0]), Some(names[1])));

    // Calls that the address denied were charged neither to the user nor to the site.
    assert_eq!((users.peek("user:43", 1).remaining(), site.peek(1).remaining()), (2, 992));
    println!("user:43 has 2 calls left, and the site counted 8.");
    Ok(())
}
