//! Who would have been limited: the keys most affected, how often and when.

use super::columns::align;
use sluicegate_sim::human::{TIE, count, key, percent, printable};
use sluicegate_sim::report::{Report, Tried};
use sluicegate_sim::simulate::crowd::Crowd;

/// Keys are cut to this many columns: an address of any kind is shorter.
const KEY_MAX: usize = 45;

pub(super) fn of(report: &Report<'_>, top: usize) -> String {
    let crowd = Crowd::new(&report.simulation);
    report.tried.iter().map(|tried| under(report, tried, &crowd, top)).collect()
}

fn under(report: &Report<'_>, tried: &Tried, crowd: &Crowd, top: usize) -> String {
    let outcome = &tried.outcome;
    let keys = report.simulation.keys();
    let affected = outcome.keys.iter().filter(|key| key.denied > 0).count() as u64;
    let mut text = format!(
        "\n{}\n  {} of {} calls denied ({}), {} of {} keys affected\n",
        printable(&tried.label),
        count(outcome.denied),
        count(outcome.allowed + outcome.denied),
        percent(part(outcome.denied, outcome.allowed + outcome.denied)),
        count(affected),
        count(keys.len() as u64),
    );
    if outcome.denied > 0 {
        text += &busiest(report, tried);
        if let Some(above) = crowd.above_p99(keys, outcome) {
            text += &format!(
                "  {} of them ({}) from the {} keys above the 99th percentile of {} calls\n",
                count(above.denied),
                percent(part(above.denied, outcome.denied)),
                count(above.keys as u64),
                count(above.calls),
            );
        }
        text += &most_affected(report, tried, crowd, top);
    }
    text.replace(TIE, " ")
}

/// When most calls were denied.
fn busiest(report: &Report<'_>, tried: &Tried) -> String {
    let timeline = report.simulation.timeline();
    let clock = report.simulation.traffic().clock();
    let bars = tried.outcome.denied_bars.iter().enumerate();
    let Some((place, most)) = bars.max_by_key(|&(place, denied)| (*denied, usize::MAX - place)) else {
        return String::new();
    };
    let (begin, end) = (timeline.begin_of(place), timeline.begin_of(place + 1));
    format!(
        "  {} of them at the peak, from {} to {}\n",
        count(*most),
        clock.tell_briefly(begin),
        clock.tell_briefly(end)
    )
}

fn most_affected(report: &Report<'_>, tried: &Tried, crowd: &Crowd, top: usize) -> String {
    let simulation = &report.simulation;
    let clock = simulation.traffic().clock();
    let heads = ["key", "calls", "denied", "share", "first denied", "last denied"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for place in crowd.most_affected(&tried.outcome, top) {
        let offered = simulation.keys().get(place as usize).copied().unwrap_or_default();
        let fared = tried.outcome.keys.get(place as usize).copied().unwrap_or_default();
        rows.push(vec![
            key(simulation.traffic().key(place), KEY_MAX),
            count(offered.calls),
            count(u64::from(fared.denied)),
            percent(part(u64::from(fared.denied), offered.calls)),
            clock.tell_briefly(fared.first_denied),
            clock.tell_briefly(fared.last_denied),
        ]);
    }
    if rows.len() == 1 {
        return String::new();
    }
    let mut text = String::new();
    for line in align(&rows, KEY_MAX).lines() {
        text += &format!("  {line}\n");
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn part(some: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { some as f64 / all as f64 }
}
