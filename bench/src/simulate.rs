//! `sluice simulate` from end to end: traffic made up or read from a log, decided and measured.

use crate::measure::{head, median};
use sluicegate::Limit;
use sluicegate_core::Span;
use sluicegate_sim::Traffic;
use sluicegate_sim::simulate::Simulation;
use sluicegate_sim::traffic::workload::{Workload, generate};
use sluicegate_sim::traffic::{Reading, log};
use std::fmt::Write as _;
use std::time::Instant;

pub const ROUNDS: usize = 5;
const CALLS: u64 = 3_000_000;
const KEYS: [u32; 3] = [1_000, 100_000, 1_000_000];

const LIMITS: [&str; 6] = [
    "token-bucket 10/s burst=50",
    "fixed-window 1000/h",
    "sliding-window 100/min",
    "sliding-log 5/60s",
    "pacer 10/s queue=20",
    "token-bucket 10/s burst=50 + fixed-window 1000/day",
];

/// Random calls of keys of which a few are far busier than the rest.
fn made_up(keys: u32) -> Traffic {
    let text = format!("poisson {CALLS}/1min keys={keys} zipf=1.1");
    let workload: Workload = text.parse().expect("a workload");
    generate(&[workload], 1, Span::from_micros(60_000_000), Reading::default(), |_| {}).expect("calls")
}

pub fn run(rounds: usize) {
    println!(
        "Simulate, million calls per second on one core (median of {rounds} interleaved rounds of about {CALLS} calls):\n"
    );
    head(["", "1000 keys", "100 000 keys", "1 000 000 keys"]);
    let traffic = KEYS.map(made_up);
    let mut making = KEYS.map(|_| Vec::new());
    let mut deciding = LIMITS.map(|_| KEYS.map(|_| Vec::new()));
    for _ in 0..rounds {
        for (keys, rates) in KEYS.into_iter().zip(&mut making) {
            rates.push(rate(|| made_up(keys).calls().len()));
        }
        for (text, row) in LIMITS.into_iter().zip(&mut deciding) {
            let limits: Vec<Limit> = text.split(" + ").map(|limit| limit.parse().expect("a limit")).collect();
            for (traffic, rates) in traffic.iter().zip(row) {
                let simulation = Simulation::new(traffic, None);
                let decide = || simulation.run(&limits, |_| {}).expect("limits that go together");
                rates.push(rate(|| {
                    let outcome = decide();
                    (outcome.allowed + outcome.denied) as usize
                }));
            }
        }
    }
    print("generate calls", making);
    for (text, row) in LIMITS.into_iter().zip(deciding) {
        print(&format!("decide and measure: {text}"), row);
    }
    println!();
    logs(rounds);
}

fn print(what: &str, row: [Vec<f64>; 3]) {
    println!("| {what} | {} |", row.map(|rates| format!("{:.1}", median(rates))).join(" | "));
}

/// How many millions a second.
fn rate(work: impl FnOnce() -> usize) -> f64 {
    let began = Instant::now();
    let done = work();
    done as f64 / began.elapsed().as_secs_f64() / 1e6
}

const LINES: u64 = 1_000_000;

fn logs(rounds: usize) {
    println!(
        "Logs, million lines per second on one core (median of {rounds} interleaved rounds of {LINES} lines):\n"
    );
    head(["log", "bytes per line", "lines"]);
    let texts = [
        ("combined", combined()),
        ("JSON lines as nginx writes them", flat()),
        ("JSON lines as Caddy writes them", nested()),
    ];
    let mut rates = texts.each_ref().map(|_| Vec::new());
    for _ in 0..rounds {
        for ((_, text), rates) in texts.iter().zip(&mut rates) {
            let fields = log::Fields::new("ip", None, None);
            rates.push(rate(|| {
                log::read(text.as_bytes(), None, &fields, Reading::default()).expect("a log").calls().len()
            }));
        }
    }
    for ((name, text), rates) in texts.iter().zip(rates) {
        println!("| {name} | {} | {:.1} |", text.len() as u64 / LINES, median(rates));
    }
}

/// An address for each line, and how many seconds after the beginning it is.
fn lines() -> impl Iterator<Item = (String, u64)> {
    (0..LINES).map(|line| {
        let random = line.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        (format!("10.{}.{}.{}", random % 2, random % 100, random / 100 % 100), line / 300)
    })
}

fn combined() -> String {
    let mut text = String::new();
    for (ip, second) in lines() {
        let _ = writeln!(
            text,
            "{ip} - - [10/Nov/2026:{:02}:{:02}:{:02} +0000] \"GET /api/v1/items?page=2 HTTP/1.1\" 200 5321 \"https://example.org/items\" \"Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0\"",
            second / 3600 % 24,
            second / 60 % 60,
            second % 60
        );
    }
    text
}

fn flat() -> String {
    let mut text = String::new();
    for (ip, second) in lines() {
        let _ = writeln!(
            text,
            "{{\"time_iso8601\":\"2026-11-10T{:02}:{:02}:{:02}+00:00\",\"remote_addr\":\"{ip}\",\"request\":\"GET /api/v1/items?page=2 HTTP/1.1\",\"status\":200,\"body_bytes_sent\":5321,\"http_referer\":\"https://example.org/items\",\"http_user_agent\":\"Mozilla/5.0 (X11; Linux x86_64)\",\"request_time\":0.012}}",
            second / 3600 % 24,
            second / 60 % 60,
            second % 60
        );
    }
    text
}

fn nested() -> String {
    let mut text = String::new();
    for (ip, second) in lines() {
        let _ = writeln!(
            text,
            "{{\"level\":\"info\",\"ts\":{}.25,\"logger\":\"http.log.access\",\"msg\":\"handled request\",\"request\":{{\"remote_ip\":\"{ip}\",\"remote_port\":\"41342\",\"proto\":\"HTTP/2.0\",\"method\":\"GET\",\"host\":\"example.org\",\"uri\":\"/api/v1/items?page=2\",\"headers\":{{\"User-Agent\":[\"Mozilla/5.0\"]}}}},\"duration\":0.012,\"size\":5321,\"status\":200}}",
            1_794_268_800 + second
        );
    }
    text
}
