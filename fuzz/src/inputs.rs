//! What must hold for any input. The fuzzer calls these, and a test of `sluicegate-sim` replays the
//! corpus with them.

#![allow(dead_code, reason = "each fuzz target uses one of them")]

use sluicegate::Limit;
use sluicegate_core::concurrency::Leases;
use sluicegate_core::{Account, Algorithm as _, Time};
use sluicegate_guard::AdaptiveLimit;
use sluicegate_guard::breaker::BreakerConfig;
use sluicegate_guard::bulkhead::BulkheadConfig;
use sluicegate_guard::retry::RetryConfig;
use sluicegate_sim::overload::{Callers, Dependency, Protection};
use sluicegate_sim::replay::{HEADER, ReplayError, run};
use sluicegate_sim::traffic::log::{Fields, Format};
use sluicegate_sim::traffic::{Reading, TrafficError, csv, log as logs};
use sluicegate_sim::{Replay, Traffic};
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// Any bytes as a limit and as a list: each is rejected in one printable line, or prints as a limit
/// that is equal to it and decides.
pub(crate) fn limit(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Limit::parse_list(&text) {
        Err(error) => {
            is_one_line(&error.to_string());
            let word = error.position().map(|position| text.get(position).is_some());
            assert_ne!(word, Some(false), "the position of {error} is outside the text");
        }
        Ok(limits) => {
            let printed = Limit::list_text(&limits);
            assert_eq!(Limit::parse_list(&printed).as_ref(), Ok(&limits), "{text} printed as {printed}");
        }
    }
    match text.parse::<Limit>() {
        Err(error) => is_one_line(&error.to_string()),
        Ok(limit) => {
            let printed = limit.to_string();
            let again: Limit = printed.parse().expect("what was printed can be read");
            assert_eq!(again, limit, "{text} printed as {printed}");
            assert_eq!(again.to_string(), printed, "the canonical form is canonical");
            decides(&limit);
        }
    }
}

/// Calls at the edges of time and cost: the promises that hold for every limit do.
fn decides(limit: &Limit) {
    let Some(made) = limit.made_at(Time::saturating_from_micros(1_000_000)) else { return leases(limit) };
    for cost in [0, 1, made.limit(), made.limit().saturating_add(1), u64::MAX] {
        let mut account = Account::default();
        for at in [0, 1, 999_999, 1_794_398_400_000_000, 5, u64::MAX, 249_999_999_999_999_999] {
            let now = Time::saturating_from_micros(at);
            let decision = account.check(std::slice::from_ref(&made), now, cost);
            assert!(decision.remaining() <= decision.limit(), "{limit}");
            assert!(decision.allowed() || cost > 0, "{limit} denied a call that costs nothing");
            // Under Guava's rules the next caller pays, whatever a call costs.
            let fits = cost <= made.limit() || limit.algorithm() == "smooth";
            assert!(!decision.allowed() || fits, "{limit} allowed more than its limit");
        }
    }
}

/// The same for one that gives leases: never more are out than it says, and what is released is
/// free again.
fn leases(limit: &Limit) {
    let concurrency = limit.as_concurrency().expect("what decides no checks gives leases");
    let (count, mut leases) = (concurrency.count(), Leases::default());
    for cost in [0, 1, count, count.saturating_add(1), u64::MAX] {
        for at in [0, 1, 999_999, 1_794_398_400_000_000, 5, u64::MAX, 249_999_999_999_999_999] {
            let now = Time::saturating_from_micros(at);
            let (decision, held) = concurrency.acquire(&mut leases, now, cost, ());
            assert!(leases.sum() <= count && decision.limit() == count, "{limit}");
            assert_eq!(decision.allowed(), cost == 0 || held.is_some(), "{limit}");
            assert!(held.is_none_or(|held| at % 2 == 1 || leases.release(now, held)), "{limit}");
        }
    }
}

/// Any bytes as what a guard is made of, and as what is simulated with one: each is refused in one
/// printable line, or prints as one that is equal to it.
pub(crate) fn guard(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    reads_as_printed::<BreakerConfig>(&text);
    reads_as_printed::<BulkheadConfig>(&text);
    reads_as_printed::<AdaptiveLimit>(&text);
    reads_as_printed::<RetryConfig>(&text);
    reads_as_printed::<Dependency>(&text);
    reads_as_printed::<Callers>(&text);
    if let Err(error) = text.parse::<Protection>() {
        is_one_line(&error.to_string());
    }
}

fn reads_as_printed<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) {
    /// The longest line that is read. What was shortened by hand may print as a longer one.
    const LINE_MAX: usize = 256;
    match text.parse::<T>() {
        Err(error) => is_one_line(&error.to_string()),
        Ok(read) => {
            let printed = read.to_string();
            if printed.len() <= LINE_MAX {
                let again = printed.parse::<T>().unwrap_or_else(|error| panic!("{printed}: {error}"));
                assert_eq!(again, read, "{text} printed as {printed}");
                assert_eq!(again.to_string(), printed, "the canonical form is canonical");
            }
        }
    }
}

/// Any bytes as limits (the first line, separated by `;`) and a trace: a decision for each call up
/// to the first bad row, which is refused in one printable line.
pub(crate) fn trace(data: &[u8]) {
    let cut = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let (limits, trace) = data.split_at(cut);
    let limits = String::from_utf8_lossy(limits);
    let Ok(limits) = limits.split(';').map(str::parse::<Limit>).collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let Ok(replay) = Replay::new(limits) else { return };
    let mut out = Vec::new();
    let result = run(replay, trace.get(1..).unwrap_or_default(), &mut out);
    let out = String::from_utf8(out).expect("decisions are text");
    let mut rows = out.lines();
    match result {
        Ok(calls) => {
            assert_eq!(rows.next(), Some(HEADER));
            assert_eq!(rows.clone().count() as u64, calls, "one decision a call");
        }
        Err(ReplayError::Trace(error)) => is_one_line(&error.to_string()),
        Err(ReplayError::Write(error)) => panic!("writing to memory cannot fail: {error}"),
    }
    for row in rows.filter(|row| *row != HEADER) {
        let fields: Vec<&str> = row.split(',').collect();
        assert_eq!(fields.len(), 6, "{row}");
        assert_eq!(
            fields[0] == "1",
            fields[3].is_empty(),
            "allowed has no retry_after, denied has one: {row}"
        );
    }
}

/// Any bytes as what to read (the first line: key, time and cost, separated by `;`) and a log, or a
/// trace: in every format each line is a call or broken, and what is broken is said in one
/// printable line.
pub(crate) fn log(data: &[u8]) {
    let cut = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let (asked, log) = data.split_at(cut);
    let log = log.get(1..).unwrap_or_default();
    let asked = String::from_utf8_lossy(asked);
    let mut asked = asked.split(';');
    let key = asked.next().filter(|key| !key.is_empty()).unwrap_or("ip");
    let fields = Fields::new(key, asked.next(), asked.next());
    let lines = log.split(|&byte| byte == b'\n').count() as u64;
    for strict in [false, true] {
        let reading = Reading { strict, ..Reading::default() };
        for format in [None, Some(Format::Common), Some(Format::Combined), Some(Format::Json)] {
            is_traffic(logs::read(log, format, &fields, reading), lines, strict);
        }
        is_traffic(csv::read(log, reading), lines, strict);
    }
}

fn is_traffic(result: Result<Traffic, TrafficError>, lines: u64, strict: bool) {
    match result {
        Err(error) => is_one_line(&error.to_string()),
        Ok(traffic) => {
            let broken = traffic.broken();
            assert!(!traffic.calls().is_empty());
            assert!(traffic.calls().len() as u64 + broken.count <= lines, "no line is counted twice");
            assert!(!strict || broken.count == 0);
            for line in &broken.first {
                assert!((1..=lines).contains(&line.line), "{line}");
                is_one_line(&line.to_string());
            }
        }
    }
}

fn is_one_line(message: &str) {
    assert!(!message.is_empty() && message.chars().count() < 600, "{message:?}");
    assert!(!message.chars().any(char::is_control), "{message:?}");
}
