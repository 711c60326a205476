//! The classic scenarios, replayed in virtual time: `cargo run --release --example scenarios`.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use sluicegate::core::{Span, Time};
use sluicegate_sim::scenarios::{self, Call, Scenario};
use sluicegate_sim::{Replay, strip};
use std::fmt::Write as _;

/// Strips of more moments than this are drawn as one.
const MOMENTS_MAX: usize = 6;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("A caller who tries each 1.25 s, under five limits of 12 a minute:\n\n{}", strip::comparison()?);
    for scenario in scenarios::all() {
        println!("{}", told(&scenario)?);
    }
    println!("{} allowed  {} denied. Nothing slept: time is an argument.", strip::ALLOWED, strip::DENIED);
    println!("Try your own: cargo run --release --bin sluice -- explain 'token-bucket 30/60s burst=15'");
    Ok(())
}

fn told(scenario: &Scenario) -> Result<String, Box<dyn std::error::Error>> {
    let mut replay = Replay::new(vec![scenario.limit.parse()?])?;
    let mut text = format!("{}\n    {}\n", scenario.wish, scenario.limit);
    let start = scenario.calls.first().map_or(Time::EPOCH, |call| call.at);
    let moments: Vec<&[Call]> =
        scenario.calls.chunk_by(|one, next| (one.at, one.key) == (next.at, next.key)).collect();
    let mut decide = |calls: &[Call]| -> String {
        calls
            .iter()
            .map(|call| replay.check(call.at, call.key.as_bytes(), 1).allowed())
            .map(|allowed| if allowed { strip::ALLOWED } else { strip::DENIED })
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

/// `+30m`, or `+30m - 1us` where that is meant.
fn after(wait: Span) -> String {
    let next = Span::from_micros(wait.as_micros() + 1);
    if next.as_micros().is_multiple_of(1_000_000) { format!("+{next} - 1us") } else { format!("+{wait}") }
}
