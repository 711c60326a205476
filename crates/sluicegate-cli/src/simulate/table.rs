//! The outcome as a table for the terminal.

use super::columns::align;
use sluicegate_core::Span;
use sluicegate_sim::human::{TIE, about, count, many, percent, printable, span};
use sluicegate_sim::report::{Report, Tried};
use sluicegate_sim::traffic::Clock;

pub(super) fn of(report: &Report<'_>) -> String {
    headline(report) + &outcomes(report) + &deciles(report)
}

/// `poisson 20/s, seed 1: 12 000 calls of 100 keys in 10 min`
fn headline(report: &Report<'_>) -> String {
    let traffic = report.simulation.traffic();
    let when = match traffic.clock() {
        Clock::Since(_) => format!("in {}", span(traffic.length())),
        Clock::Utc => format!("from {} to {} UTC", report.time(traffic.first()), report.time(traffic.last())),
    };
    let mut text = format!("{}: {} {when}\n", printable(&report.source), report.calls_and_keys());
    if traffic.sorted() > 0 {
        text += &format!("{} out of order in the log, sorted by time\n", many(traffic.sorted(), "call"));
    }
    text.push('\n');
    text.replace(TIE, " ")
}

fn outcomes(report: &Report<'_>) -> String {
    let mut rows = vec![
        ["", "", "", "longest", "longest", ""].map(str::to_owned),
        ["limit", "allowed", "denied", "run", "wait", "worst"].map(str::to_owned),
    ];
    rows.extend(report.tried.iter().map(outcome));
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.to_vec()).collect();
    align(&rows)
}

fn outcome(tried: &Tried) -> [String; 6] {
    let outcome = &tried.outcome;
    [
        printable(&tried.label),
        count(outcome.allowed),
        count(outcome.denied),
        count(outcome.longest_denials.most),
        longest_wait(tried),
        worst(tried),
    ]
}

/// A dash if no caller had to wait, and `never` if no wait would help.
fn longest_wait(tried: &Tried) -> String {
    match tried.outcome.longest_wait.most {
        _ if tried.outcome.never > 0 => "never".to_owned(),
        Span::ZERO => "-".to_owned(),
        wait => about(wait),
    }
}

/// `24 of 12 in 1 min`
fn worst(tried: &Tried) -> String {
    let Some((limit, worst)) = tried.worst() else { return String::new() };
    format!("{} of {} in {}", count(worst.count), count(limit.count()), span(worst.length))
}

/// What each tenth of the keys offers, and what comes through of that.
fn deciles(report: &Report<'_>) -> String {
    let keys = report.simulation.keys();
    let of = |tried: &Tried| report.crowd.deciles(keys, &tried.outcome);
    let all: u64 = keys.iter().map(|key| key.cost).sum();
    let Some(first) = report.tried.first().map(of).filter(|deciles| !deciles.is_empty()) else {
        return String::new();
    };
    let row = |head: &str, cells: Vec<String>| [vec![printable(head)], cells].concat();
    let mut rows = vec![row("tenth of the keys", (1..=10).map(|tenth| format!("{tenth}.")).collect())];
    rows.push(row("offered", first.iter().map(|decile| bare(decile.offered, all)).collect()));
    for tried in &report.tried {
        rows.push(row(
            &tried.label,
            of(tried).iter().map(|decile| bare(decile.allowed, decile.offered)).collect(),
        ));
    }
    format!(
        "\nBy tenths of the keys, the busiest first, in per cent: the part of all load that\nthey offer, and the part of that which each limit allows.\n{}",
        align(&rows)
    )
}

/// Without the sign, as there is a column of them.
fn bare(some: u64, all: u64) -> String {
    if all == 0 {
        return "-".to_owned();
    }
    percent(some, all).replace(&format!("{TIE}%"), "")
}
