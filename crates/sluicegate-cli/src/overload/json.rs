//! The outcome as JSON: the numbers of the table and the pictures. Times are in microseconds. What
//! there is none of is null.

use crate::Problem;
use serde::Serialize;
use sluicegate_sim::overload::{Bin, Ran, Report};

#[derive(Serialize)]
struct Everything<'a> {
    source: &'a str,
    width_us: u64,
    timeout_us: u64,
    workers: u32,
    protections: Vec<One<'a>>,
}

/// One protection.
#[derive(Serialize)]
struct One<'a> {
    label: &'a str,
    offered: u64,
    good: u64,
    denied: u64,
    failed: u64,
    timed_out: u64,
    tries: u64,
    worked_us: u64,
    wasted_us: u64,
    p50_us: u64,
    p99_us: u64,
    limit_min: Option<u32>,
    limit_max: Option<u32>,
    over_time: Vec<Piece>,
}

/// One piece of time.
#[derive(Serialize)]
struct Piece {
    offered: u64,
    good: u64,
    denied: u64,
    failed: u64,
    timed_out: u64,
    p50_us: u64,
    p99_us: u64,
    at_work: u32,
    limit: Option<u32>,
    is_open: bool,
}

pub(super) fn of(report: &Report) -> Result<String, Problem> {
    let everything = Everything {
        source: &report.source,
        width_us: report.timeline.width().as_micros(),
        timeout_us: report.timeout.as_micros(),
        workers: report.workers,
        protections: report.ran.iter().map(one).collect(),
    };
    let text = serde_json::to_string_pretty(&everything);
    text.map(|text| text + "\n").map_err(|error| format!("the numbers cannot be written as JSON: {error}"))
}

fn one(ran: &Ran) -> One<'_> {
    let totals = &ran.outcome.totals;
    One {
        label: &ran.label,
        offered: totals.offered,
        good: totals.good,
        denied: totals.denied,
        failed: totals.failed,
        timed_out: totals.timed_out,
        tries: totals.tries,
        worked_us: totals.worked.as_micros(),
        wasted_us: totals.wasted.as_micros(),
        p50_us: totals.p50.as_micros(),
        p99_us: totals.p99.as_micros(),
        limit_min: totals.limit.map(|(least, _)| least),
        limit_max: totals.limit.map(|(_, most)| most),
        over_time: ran.outcome.bins.iter().map(piece).collect(),
    }
}

fn piece(bin: &Bin) -> Piece {
    Piece {
        offered: bin.offered,
        good: bin.good,
        denied: bin.denied,
        failed: bin.failed,
        timed_out: bin.timed_out,
        p50_us: bin.p50.as_micros(),
        p99_us: bin.p99.as_micros(),
        at_work: bin.at_work,
        limit: bin.limit,
        is_open: bin.is_open,
    }
}
