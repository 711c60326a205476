//! The classic scenarios, replayed in virtual time: `cargo run --release --example scenarios`.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use sluicegate_core::{Span, Time};
use sluicegate_sim::Replay;
use sluicegate_sim::scenarios::{self, Call, Scenario};
use std::fmt::Write as _;

/// A call that passed.
const ALLOWED: char = '●';
/// A call that was turned away.
const DENIED: char = '·';

/// All of them allow 12 per minute.
const COMPARED: [&str; 5] = [
    "fixed-window 12/60s",
    "sliding-window 12/60s",
    "sliding-log 12/60s",
    "token-bucket 12/60s",
    "min-interval 5s",
];

/// Strips of more moments than this are drawn as one.
const MOMENTS_MAX: usize = 6;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("A caller who tries each 1.25 s, under five limits of 12 a minute:\n\n{}", comparison()?);
    for scenario in scenarios::all() {
        println!("{}", reported(&scenario)?);
    }
    println!("{ALLOWED} allowed  {DENIED} denied. Nothing slept: time is an argument.");
    println!("Try your own: cargo run --release --bin sluice -- explain 'token-bucket 30/60s burst=15'");
    Ok(())
}

fn reported(scenario: &Scenario) -> Result<String, Box<dyn std::error::Error>> {
    let mut replay = Replay::new(vec![scenario.limit.parse()?])?;
    let mut text = format!("{}\n    {}\n", scenario.wish, scenario.limit);
    let start = scenario.calls.first().map_or(Time::EPOCH, |call| call.at);
    let moments: Vec<&[Call]> =
        scenario.calls.chunk_by(|one, next| (one.at, one.key) == (next.at, next.key)).collect();
    let mut decide = |calls: &[Call]| -> String {
        calls
            .iter()
            .map(|call| replay.check(call.at, call.key.as_bytes(), 1).allowed())
            .map(|allowed| if allowed { ALLOWED } else { DENIED })
            .collect()
    };
    if moments.len() > MOMENTS_MAX {
        let _ = writeln!(text, "    in order        {}", decide(&scenario.calls));
    } else {
        for calls in moments {
            let (key, at) = (calls[0].key, calls[0].at.since(start));
            let when = if at == Span::ZERO { "at once".to_owned() } else { after(at) };
            let _ = writeln!(text, "    {when:<15} {:<13} {}", key, decide(calls));
        }
    }
    Ok(format!("{text}    {}\n", scenario.shows))
}

/// `+30min`, or `+30min - 1us` where that is meant.
fn after(wait: Span) -> String {
    let next = Span::from_micros(wait.as_micros() + 1);
    if next.as_micros().is_multiple_of(1_000_000) { format!("+{next} - 1us") } else { format!("+{wait}") }
}

/// The same calls under each algorithm: one every 1.25 s for 105 s, from half a minute before a
/// minute ends.
fn comparison() -> Result<String, Box<dyn std::error::Error>> {
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
