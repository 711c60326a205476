//! The outcome as CSV: the table, what happened over time, and how keys fared. Moments stand there
//! twice: in microseconds since 1970 and as a date in UTC, for spreadsheets.

use sluicegate_core::Time;
use sluicegate_sim::report::{Report, Tried};

/// A row for each limit that was tried. What there is none of is empty.
pub(super) fn table(report: &Report<'_>) -> String {
    let mut text = "label,limit,allowed,denied,never,allowed_cost,longest_run,longest_wait_us,\
                    worst,worst_of,worst_period_us,worst_until_us,worst_until,worst_key\n"
        .to_owned();
    for tried in &report.tried {
        text += &row(report, tried);
    }
    text
}

fn row(report: &Report<'_>, tried: &Tried) -> String {
    let outcome = &tried.outcome;
    let Some((limit, worst)) = tried.worst() else { return String::new() };
    let where_it_was = match worst.count {
        0 => ",,".to_owned(),
        _ => format!("{},{}", moment(worst.at), key(report, worst.key)),
    };
    let cells = [
        quoted(&tried.label),
        quoted(&tried.limits_text()),
        outcome.allowed.to_string(),
        outcome.denied.to_string(),
        outcome.never.to_string(),
        outcome.allowed_cost.to_string(),
        outcome.longest_denials.most.to_string(),
        outcome.longest_wait.most.as_micros().to_string(),
        worst.count.to_string(),
        limit.count().to_string(),
        worst.length.as_micros().to_string(),
        where_it_was,
    ];
    cells.join(",") + "\n"
}

/// A row for each piece of time under each limit.
pub(super) fn series(report: &Report<'_>) -> String {
    let mut text = "label,from_us,from,to_us,to,offered_cost,allowed_cost,denied\n".to_owned();
    let timeline = report.simulation.timeline();
    for tried in &report.tried {
        let label = quoted(&tried.label);
        let outcome = &tried.outcome;
        let bars = report.simulation.offered().iter().zip(&outcome.allowed_bars).zip(&outcome.denied_bars);
        for (place, ((offered, allowed), denied)) in bars.enumerate() {
            let (from, to) = (moment(timeline.begin_of(place)), moment(timeline.begin_of(place + 1)));
            text += &format!("{label},{from},{to},{offered},{allowed},{denied}\n");
        }
    }
    text
}

/// A row for each key under each limit that denied it anything, those denied most first.
pub(super) fn keys(report: &Report<'_>) -> String {
    let mut text = "label,key,calls,offered_cost,allowed_cost,denied,first_denied_us,first_denied,\
                    last_denied_us,last_denied\n"
        .to_owned();
    for tried in &report.tried {
        let label = quoted(&tried.label);
        for place in report.crowd.most_affected(&tried.outcome, usize::MAX) {
            let offered = report.simulation.keys().get(place as usize).copied().unwrap_or_default();
            let fared = tried.outcome.keys.get(place as usize).copied().unwrap_or_default();
            text += &format!(
                "{label},{},{},{},{},{},{},{}\n",
                key(report, place),
                offered.calls,
                offered.cost,
                fared.allowed_cost,
                fared.denied,
                moment(fared.first_denied),
                moment(fared.last_denied),
            );
        }
    }
    text
}

/// A moment in microseconds and as a date.
fn moment(at: Time) -> String {
    format!("{},{at}", at.as_micros())
}

fn key(report: &Report<'_>, place: u32) -> String {
    quoted(&String::from_utf8_lossy(report.simulation.traffic().key(place)))
}

/// In quotes if it needs them.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
