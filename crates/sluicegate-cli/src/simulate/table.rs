//! The outcome as a table for the terminal.

use super::columns::align;
use sluicegate::core::Span;
use sluicegate_sim::human::{TIE, about, count, percent, printable, span};
use sluicegate_sim::report::{Report, Tried};
use sluicegate_sim::simulate::crowd::Crowd;
use sluicegate_sim::traffic::Clock;

/// Labels are not cut to less, in columns.
const LABEL_MIN: usize = 16;

pub(super) fn of(report: &Report<'_>) -> String {
    headline(report) + &outcomes(report) + &deciles(report)
}

/// `poisson 20/s, seed 1: 12 000 calls of 100 keys in 10 min`
fn headline(report: &Report<'_>) -> String {
    let traffic = report.simulation.traffic();
    let when = match traffic.clock() {
        Clock::Since(start) => format!("in {}", about(report.simulation.timeline().end().since(start))),
        Clock::Utc => format!("from {} to {} UTC", report.time(traffic.first()), report.time(traffic.last())),
    };
    let calls = many(traffic.calls().len() as u64, "call");
    let keys = many(traffic.keys() as u64, "key");
    let mut text = format!("{}: {calls} of {keys} {when}\n", report.source);
    if traffic.sorted() > 0 {
        let late = many(traffic.sorted(), "call");
        text += &format!("{late} stood behind a later one in the log and came in order of time\n");
    }
    text.push('\n');
    text.replace(TIE, " ")
}

fn many(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

fn outcomes(report: &Report<'_>) -> String {
    let mut rows = vec![
        ["", "", "", "longest", "longest", ""].map(str::to_owned),
        ["limit", "allowed", "denied", "run", "wait", "worst"].map(str::to_owned),
    ];
    rows.extend(report.tried.iter().map(outcome));
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.to_vec()).collect();
    align(&rows, LABEL_MIN)
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

/// A dash when nobody had to wait, and `never` when waiting would not help.
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
    format!("{} of {} in {}", count(worst.count), count(u64::from(limit.count())), span(worst.length))
}

/// What each tenth of the keys offers, and what comes through of that.
fn deciles(report: &Report<'_>) -> String {
    let simulation = &report.simulation;
    let crowd = Crowd::new(simulation);
    let of = |tried: &Tried| crowd.deciles(simulation.keys(), &tried.outcome);
    let Some(first) = report.tried.first().map(of).filter(|deciles| !deciles.is_empty()) else {
        return String::new();
    };
    let row = |head: &str, cells: Vec<String>| [vec![printable(head)], cells].concat();
    let mut rows = vec![row("tenth of the keys", (1..=10).map(|tenth| format!("{tenth}.")).collect())];
    rows.push(row("offered", first.iter().map(|decile| bare(decile.offered)).collect()));
    for tried in &report.tried {
        rows.push(row(&tried.label, of(tried).iter().map(|decile| bare(decile.allowed)).collect()));
    }
    format!(
        "\nBy tenths of the keys, the busiest first, in per cent: the part of all load that\nthey offer, and the part of that which each limit allows.\n{}",
        align(&rows, LABEL_MIN)
    )
}

/// Without the sign, as there is a column of them.
fn bare(part: f64) -> String {
    percent(part).replace(&format!("{TIE}%"), "")
}
