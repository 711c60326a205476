//! "A client may make 50 API calls in 10 seconds, evenly spaced, not all in the first second."
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 50 in 10 s, evenly spaced, is one every 200 ms. The first two limits decide alike. The first
    // is the shortest. The second keeps the agreed numbers, and a larger burst would tolerate a
    // client that is late. The third is a mistake: an idle bucket is full, so 50 may come at once.
    for limit in ["min-interval 200ms", "token-bucket 50/10s burst=1", "token-bucket 50/10s"] {
        let clock = ManualClock::default();
        let calls = Limiter::builder(limit).clock(clock.clone()).build()?;

        // A client that calls every 10 ms for 10 s.
        let mut seconds = [0; 10];
        for tick in 0..1000 {
            seconds[tick / 100] += u32::from(calls.check("client-1").allowed());
            clock.advance(Duration::from_millis(10));
        }
        println!("{limit:28} calls allowed per second: {seconds:?}");
        if limit.ends_with("50/10s") {
            assert_eq!(seconds, [54, 5, 5, 5, 5, 5, 5, 5, 5, 5]);
        } else {
            assert_eq!(seconds, [5; 10]);
        }
    }
    Ok(())
}
