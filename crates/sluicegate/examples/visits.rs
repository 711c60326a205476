//! "An IP address may visit 10 times a minute. The page has to tell how many visits are left."
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Addresses come in great numbers, so this one has a bound of its own: see "Memory" in the guide.
    let clock = ManualClock::default();
    let limit = "sliding-window 10/60s"; // 16 bytes an address, however many visits
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

    // The same address as IPv6 sees it is the same key; another address is another.
    assert!(!visits.check("::ffff:203.0.113.9".parse::<IpAddr>()?).allowed());
    assert!(visits.check("203.0.113.10".parse::<IpAddr>()?).allowed());

    // Of IPv6 a client often holds 2^64 addresses. Limit what they have in common: the first 64 bits.
    for n in 0..11_u16 {
        let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n);
        assert_eq!(visits.check(address.to_bits() >> 64).allowed(), n < 10);
    }
    println!("2001:db8::/64 has used its visits too, from ten addresses.");
    Ok(())
}
