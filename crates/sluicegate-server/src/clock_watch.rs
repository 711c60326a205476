//! Logs steps of the system's clock.

use sluicegate::clock::{ClockSteps, SystemClock};
use std::time::Duration;
use tracing::warn;

/// How often the clock is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Looks at the clock every second, so that a step is noticed without a call, and logs each step.
pub(crate) async fn log_steps() {
    // The clock may have been set since the process started, before this runs for the first time.
    let mut seen = ClockSteps::default();
    loop {
        let steps = SystemClock::steps();
        for line in lines(&seen, &steps) {
            warn!("{line}");
        }
        seen = steps;
        tokio::time::sleep(INTERVAL).await;
    }
}

/// One line for each direction in which the clock was set in between.
fn lines(before: &ClockSteps, now: &ClockSteps) -> Vec<String> {
    let forward = (now.forward - before.forward, now.forward_micros - before.forward_micros, "forward");
    let back = (now.back - before.back, now.back_micros - before.back_micros, "back");
    let line = |(steps, micros, direction): (u64, u64, &str)| {
        let times = if steps == 1 { String::new() } else { format!(" in {steps} steps") };
        let (seconds, millis) = (micros / 1_000_000, micros / 1_000 % 1_000);
        format!(
            "the system clock was set {direction} by {seconds}.{millis:03} s{times}: in memory, windows aligned \
             to UTC follow it, and everything else does not"
        )
    };
    [forward, back].into_iter().filter(|(steps, ..)| *steps > 0).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_size_and_direction() {
        let before = ClockSteps::default();
        let mut now = before;
        assert!(lines(&before, &now).is_empty());
        (now.forward, now.forward_micros) = (1, 3_600_042_999);
        (now.back, now.back_micros) = (2, 200_000);
        let lines = lines(&before, &now);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("the system clock was set forward by 3600.042 s: "), "{}", lines[0]);
        assert!(
            lines[1].starts_with("the system clock was set back by 0.200 s in 2 steps: "),
            "{}",
            lines[1]
        );
    }
}
