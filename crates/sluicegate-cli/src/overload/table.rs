//! The outcome as a table for the terminal.

use crate::simulate::columns::align;
use sluicegate_sim::human::{TIE, about, count, many, percent, printable, span};
use sluicegate_sim::overload::{Ran, Report};

pub(super) fn of(report: &Report) -> String {
    let offered = report.ran.first().map_or(0, |ran| ran.outcome.totals.offered);
    let length = report.timeline.end().since(report.timeline.start());
    let headline =
        format!("{}\n{} in {}\n\n", printable(&report.source), many(offered, "call"), span(length));
    let heads =
        ["protection", "good", "denied", "failed", "timed out", "tries", "wasted", "p50", "p99", "limit"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(report.ran.iter().map(row));
    headline.replace(TIE, " ") + &align(&rows)
}

fn row(ran: &Ran) -> Vec<String> {
    let totals = &ran.outcome.totals;
    let part = |some| percent(some, totals.offered);
    let limit = match totals.limit {
        None => "-".to_owned(),
        Some((least, most)) if least == most => count(least.into()),
        Some((least, most)) => format!("{} to {}", count(least.into()), count(most.into())),
    };
    vec![
        printable(&ran.label),
        part(totals.good),
        part(totals.denied),
        part(totals.failed),
        part(totals.timed_out),
        count(totals.tries),
        percent(totals.wasted.as_micros(), totals.worked.as_micros().max(1)),
        about(totals.p50),
        about(totals.p99),
        limit,
    ]
}
