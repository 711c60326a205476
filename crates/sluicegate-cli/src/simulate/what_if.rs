//! Who would have been limited: the keys most affected, how often and when.

use super::columns::align;
use sluicegate_sim::human::{TIE, count, key, many, percent, printable, span};
use sluicegate_sim::report::{Report, Tried};

/// Keys are cut to this many columns: an address of any kind is shorter.
const KEY_MAX: usize = 45;

pub(super) fn of(report: &Report<'_>, top: usize) -> String {
    report.tried.iter().map(|tried| under(report, tried, top)).collect()
}

fn under(report: &Report<'_>, tried: &Tried, top: usize) -> String {
    let outcome = &tried.outcome;
    let keys = report.simulation.keys();
    let affected = outcome.keys.iter().filter(|key| key.denied > 0).count();
    let all = outcome.allowed + outcome.denied;
    let mut text = format!(
        "\n{}\n  {} of {} calls denied ({}), {} of {} keys affected\n",
        printable(&tried.label),
        count(outcome.denied),
        count(all),
        percent(outcome.denied, all),
        count(affected as u64),
        count(keys.len() as u64),
    );
    if outcome.denied > 0 {
        text += &peak(report, tried);
        if let Some(above) = report.crowd.above_p99(keys, outcome) {
            text += &format!(
                "  {} of them ({}) from the {} above the 99th percentile of {}\n",
                count(above.denied),
                percent(above.denied, outcome.denied),
                many(above.keys as u64, "key"),
                many(above.calls, "call"),
            );
        }
        text += &most_affected(report, tried, top);
        if affected > top {
            let more = many((affected - top) as u64, "more key");
            text += &format!("  and {more}; --top lists more, --keys FILE all\n");
        }
    }
    text.replace(TIE, " ")
}

/// When most calls were denied.
fn peak(report: &Report<'_>, tried: &Tried) -> String {
    let Some(limit) = tried.limits.first() else { return String::new() };
    let peak = tried.outcome.peak;
    let at = report.brief_time(peak.at);
    format!("  {} of them at the peak, within {} up to {at}\n", count(peak.most), span(limit.period()))
}

fn most_affected(report: &Report<'_>, tried: &Tried, top: usize) -> String {
    let simulation = &report.simulation;
    let heads = ["key", "calls", "denied", "share", "first denied", "last denied"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for place in report.crowd.most_affected(&tried.outcome, top) {
        let offered = simulation.keys().get(place as usize).copied().unwrap_or_default();
        let fared = tried.outcome.keys.get(place as usize).copied().unwrap_or_default();
        rows.push(vec![
            key(simulation.traffic().key(place), KEY_MAX),
            count(offered.calls),
            count(u64::from(fared.denied)),
            percent(u64::from(fared.denied), offered.calls),
            report.brief_time(fared.first_denied),
            report.brief_time(fared.last_denied),
        ]);
    }
    if rows.len() == 1 {
        return String::new();
    }
    let mut text = String::new();
    for line in align(&rows).lines() {
        text += &format!("  {line}\n");
    }
    text
}
