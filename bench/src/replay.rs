//! `sluice replay` from end to end: CSV in memory in, decisions out to nowhere.

use crate::measure::{head, median};
use sluicegate::Limit;
use sluicegate_sim::Replay;
use sluicegate_sim::replay::run as run_trace;
use std::fmt::Write as _;
use std::time::Instant;

const ROWS: u64 = 1_000_000;
pub const ROUNDS: usize = 5;

const LIMITS: [&[&str]; 7] = [
    &["token-bucket 10/s burst=50"],
    &["fixed-window 1000/h"],
    &["fixed-window 10/day tz=Asia/Shanghai"],
    &["sliding-window 100/min"],
    &["sliding-log 5/60s"],
    &["pacer 10/s queue=20"],
    &["token-bucket 10/s burst=50", "fixed-window 1000/day"],
];

/// A trace of calls some 8 µs apart by that many keys, the same every time.
fn trace(keys: u64) -> String {
    let (mut at, mut random) = (1_794_398_400_000_000_u64, 1_u64);
    let mut text = "at_us,key,cost\n".to_owned();
    for _ in 0..ROWS {
        // A linear congruential generator is random enough to touch keys in no order.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        at += random >> 60;
        let _ = writeln!(text, "{at},user:{},1", (random >> 20) % keys);
    }
    text
}

pub fn run(rounds: usize) {
    println!(
        "Replay, million rows per second on one core (median of {rounds} interleaved rounds of {ROWS} rows):\n"
    );
    head(["limits", "1000 keys", "10 000 keys", "100 000 keys", "1 000 000 keys"]);
    let traces = [1_000, 10_000, 100_000, 1_000_000].map(trace);
    let mut figures = vec![vec![Vec::new(); traces.len()]; LIMITS.len()];
    for _ in 0..rounds {
        for (limits, row) in LIMITS.iter().zip(&mut figures) {
            for (trace, rates) in traces.iter().zip(row) {
                // Once for nothing: what a run before left to the allocator to clean up is no part
                // of this one.
                seconds(limits, &traces[0]);
                rates.push(ROWS as f64 / seconds(limits, trace) / 1e6);
            }
        }
    }
    for (limits, row) in LIMITS.iter().zip(figures) {
        let cells: Vec<String> = row.into_iter().map(|rates| format!("{:.1}", median(rates))).collect();
        println!("| {} | {} |", limits.join(" and "), cells.join(" | "));
    }
}

/// How long a replay takes.
fn seconds(limits: &[&str], trace: &str) -> f64 {
    let parsed = limits.iter().map(|text| text.parse::<Limit>().expect("a limit")).collect();
    let replay = Replay::new(parsed).expect("limits that go together");
    let began = Instant::now();
    run_trace(replay, trace.as_bytes(), std::io::sink()).expect("a good trace");
    began.elapsed().as_secs_f64()
}
