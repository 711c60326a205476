//! The outcome as CSV: the table, and what happened over time.

use sluicegate_sim::report::{Report, Tried};

/// A row for each limit that was tried.
pub(super) fn table(report: &Report<'_>) -> String {
    let mut text = "label,limit,allowed,denied,never,allowed_cost,longest_denials,longest_wait_us,\
                    worst_count,worst_limit,worst_period_us,worst_at_us,worst_key\n"
        .to_owned();
    for tried in &report.tried {
        text += &row(report, tried);
    }
    text
}

fn row(report: &Report<'_>, tried: &Tried) -> String {
    let outcome = &tried.outcome;
    let Some((limit, worst)) = tried.worst() else { return String::new() };
    let cells = [
        quoted(&tried.label),
        quoted(&limits(tried)),
        outcome.allowed.to_string(),
        outcome.denied.to_string(),
        outcome.never.to_string(),
        outcome.allowed_cost.to_string(),
        outcome.longest_denials.most.to_string(),
        outcome.longest_wait.most.as_micros().to_string(),
        worst.count.to_string(),
        limit.count().to_string(),
        worst.length.as_micros().to_string(),
        worst.at.as_micros().to_string(),
        quoted(&String::from_utf8_lossy(report.simulation.traffic().key(worst.key))),
    ];
    cells.join(",") + "\n"
}

/// A row for each piece of time under each limit.
pub(super) fn series(report: &Report<'_>) -> String {
    let mut text = "label,from_us,to_us,offered_cost,allowed_cost,denied_calls\n".to_owned();
    let timeline = report.simulation.timeline();
    for tried in &report.tried {
        let label = quoted(&tried.label);
        let outcome = &tried.outcome;
        let bars = report.simulation.offered().iter().zip(&outcome.allowed_bars).zip(&outcome.denied_bars);
        for (place, ((offered, allowed), denied)) in bars.enumerate() {
            let (from, to) = (timeline.begin_of(place).as_micros(), timeline.begin_of(place + 1).as_micros());
            text += &format!("{label},{from},{to},{offered},{allowed},{denied}\n");
        }
    }
    text
}

/// The limits as text: `A + B`.
pub(super) fn limits(tried: &Tried) -> String {
    tried.limits.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ")
}

/// In quotes if it needs them.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
