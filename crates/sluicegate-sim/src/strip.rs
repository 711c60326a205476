//! Decisions as strips of marks, for the terminal and the README.

use crate::replay::Replay;
use sluicegate::core::Time;
use std::fmt::Write as _;

/// A call that passed.
pub const ALLOWED: char = '●';
/// A call that was turned away.
pub const DENIED: char = '·';

/// The limits of [`comparison`]: all of them 12 a minute.
pub const COMPARED: [&str; 5] = [
    "fixed-window 12/60s",
    "sliding-window 12/60s",
    "sliding-log 12/60s",
    "token-bucket 12/60s",
    "min-interval 5s",
];

/// The same calls under each algorithm: one each 1.25 s for 105 s, from half a minute before a minute ends.
///
/// # Errors
/// When a limit cannot be read, which a test rules out.
pub fn comparison() -> Result<String, Box<dyn std::error::Error>> {
    const CALLS: u64 = 84;
    // 2026-11-11T12:00:30Z
    let times = (0..CALLS).map(|call| Time::saturating_from_micros(1_794_398_430_000_000 + call * 1_250_000));
    let mut text = format!("{:23}|12:00:30{:15}|12:01:00{:39}|12:02:00\n", "", "", "");
    for limit in COMPARED {
        let mut replay = Replay::new(vec![limit.parse()?])?;
        let mark = |at| if replay.check(at, b"", 1).allowed() { ALLOWED } else { DENIED };
        let _ = writeln!(text, "{limit:<23}{}", times.clone().map(mark).collect::<String>());
    }
    Ok(text)
}
