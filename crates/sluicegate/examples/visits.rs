//! "An IP address may visit 10 times per minute. The page shows how many visits are left."
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // There are many addresses, so their number is bounded: see "Memory" in the guide.
    let clock = ManualClock::default();
    let limit = "sliding-window 10/60s"; // 16 bytes of state per address, however many visits
    let visits = Limiter::builder(limit).max_keys(100_000).clock(clock.clone()).build()?;

    let visitor: IpAddr = "203.0.113.9".parse()?;
    let mut seen = 0;
    for visit in 1..=12 {
        let decision = visits.check(visitor);
        let answer = if decision.allowed() { "welcome" } else { "too many visits" };
        println!("visit {visit:2} from {visitor}: {answer}, {} left", decision.remaining());
        seen += u32::from(decision.allowed());
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(seen, 10);

    // The IPv4-mapped IPv6 address is the same key; another address is another key.
    assert!(!visits.check("::ffff:203.0.113.9".parse::<IpAddr>()?).allowed());
    assert!(visits.check("203.0.113.10".parse::<IpAddr>()?).allowed());

    // An IPv6 client often has 2^64 addresses. Limit what they have in common: the first 64 bits.
    for n in 0..11_u16 {
        let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n);
        assert_eq!(visits.check(address.to_bits() >> 64).allowed(), n < 10);
    }
    println!("2001:db8::/64 has used up its visits too, from ten addresses.");
    Ok(())
}
