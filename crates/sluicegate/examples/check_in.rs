//! "A player may check in once per calendar day in UTC+8."
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Time};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 2026-11-11, one second before midnight in UTC+8. In UTC it is 15:59:59.
    let clock = ManualClock::at(Time::saturating_from_micros(1_794_412_799_000_000));
    // For a zone with daylight saving write its name, as in tz=Europe/Berlin: its days have 23 to
    // 25 hours.
    let check_ins = Limiter::builder("fixed-window 1/day tz=+08:00").clock(clock.clone()).build()?;

    assert!(check_ins.check("player-1").allowed());
    println!("23:59:59  checked in");

    let again = check_ins.check("player-1");
    assert!(!again.allowed());
    println!("23:59:59  already checked in today; tomorrow starts in {}", again.reset_after());

    clock.advance(Duration::from_secs(1));
    assert!(check_ins.check("player-1").allowed());
    println!("00:00:00  checked in, on a new day and one second after the last time");

    clock.advance(Duration::from_secs(24 * 60 * 60 - 1));
    assert!(!check_ins.check("player-1").allowed());
    println!("23:59:59  already checked in today");
    Ok(())
}
