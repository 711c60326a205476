//! "When does my next window start?"
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate::{Limiter, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::default(); // 22:13:20 in UTC
    let answers = [
        ("fixed-window 5/60s", "22:14:00", "the next full minute"),
        ("fixed-window 5/60s start=first", "22:14:20", "a minute after the first call"),
        ("fixed-window 1/day tz=+08:00", "16:00:00", "midnight in UTC+8, which is tomorrow"),
        ("sliding-window 5/60s", "22:14:00", "the next full minute"),
        ("sliding-log 5/60s", "22:14:20", "when the oldest call ages out of the log"),
        ("token-bucket 6/60s", "22:13:30", "when the next token is available"),
        ("min-interval 30min", "22:43:20", "when the interval is over"),
    ];
    println!("One call at {}. The next window or unit starts at", clock_time(clock.now()));
    for (limit, at, why) in answers {
        let limiter = Limiter::builder(limit).clock(clock.clone()).build()?;
        let _ = limiter.check("user:42");
        let next = clock_time(limiter.next_window("user:42"));
        println!("  {next}  {limit:30}  {why}");
        assert_eq!(next, at);
    }
    Ok(())
}

/// The time of day in UTC.
fn clock_time(time: Time) -> String {
    let seconds = time.as_micros() / 1_000_000;
    format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}
