//! The outcome as JSON: the numbers of the tables and pictures. Times and waits are in
//! microseconds, times since 1970. What there is none of is null.

use crate::Problem;
use serde::Serialize;
use sluicegate_core::Span;
use sluicegate_sim::report::{Report, Tried};

#[derive(Serialize)]
struct Everything<'a> {
    source: &'a str,
    calls: usize,
    keys: usize,
    from_us: u64,
    to_us: u64,
    broken_lines: u64,
    out_of_order: u64,
    focus_key: String,
    over_time: Bars<'a>,
    limits: Vec<One<'a>>,
}

/// Amounts over time, in pieces of one width.
#[derive(Serialize)]
struct Bars<'a> {
    from_us: u64,
    width_us: u64,
    offered_cost: &'a [u64],
}

/// One limit that was tried, or several that must all agree.
#[derive(Serialize)]
struct One<'a> {
    label: &'a str,
    limit: String,
    allowed: u64,
    denied: u64,
    never: u64,
    allowed_cost: u64,
    longest_run: Option<LongestRun>,
    longest_wait: Option<LongestWait>,
    peak: Option<Peak>,
    worst: Vec<Worst>,
    deciles: Vec<Decile>,
    above_p99: Option<Above>,
    keys_affected: usize,
    most_affected: Vec<Affected>,
    allowed_cost_over_time: &'a [u64],
    denied_over_time: &'a [u64],
    curves: Curves<'a>,
}

#[derive(Serialize)]
struct LongestRun {
    calls: u64,
    key: String,
    until_us: u64,
}

#[derive(Serialize)]
struct LongestWait {
    wait_us: u64,
    key: String,
    at_us: u64,
}

/// When most calls of all keys together were denied within a period of the limit.
#[derive(Serialize)]
struct Peak {
    denied: u64,
    until_us: u64,
}

#[derive(Serialize)]
struct Worst {
    limit: String,
    period_us: u64,
    of: u64,
    count: u64,
    key: Option<String>,
    until_us: Option<u64>,
}

#[derive(Serialize)]
struct Decile {
    keys: usize,
    offered_cost: u64,
    allowed_cost: u64,
}

#[derive(Serialize)]
struct Above {
    more_than_calls: u64,
    keys: usize,
    denied: u64,
}

#[derive(Serialize)]
struct Affected {
    key: String,
    calls: u64,
    denied: u32,
    first_denied_us: u64,
    last_denied_us: u64,
}

#[derive(Serialize)]
struct Curves<'a> {
    from_us: u64,
    width_us: u64,
    window: &'a [u64],
    room: &'a [u64],
    room_max: u64,
}

pub(super) fn of(report: &Report<'_>, top: usize) -> Result<String, Problem> {
    let simulation = &report.simulation;
    let traffic = simulation.traffic();
    let timeline = simulation.timeline();
    let everything = Everything {
        source: &report.source,
        calls: traffic.calls().len(),
        keys: traffic.keys(),
        from_us: traffic.first().as_micros(),
        to_us: traffic.last().as_micros(),
        broken_lines: traffic.broken().count,
        out_of_order: traffic.sorted(),
        focus_key: name(report, simulation.focus()),
        over_time: Bars {
            from_us: timeline.start().as_micros(),
            width_us: timeline.width().as_micros(),
            offered_cost: simulation.offered(),
        },
        limits: report.tried.iter().map(|tried| one(report, tried, top)).collect(),
    };
    let text = serde_json::to_string_pretty(&everything);
    text.map(|text| text + "\n")
        .map_err(|error| format!("the JSON cannot be made: {error}; please report it"))
}

/// Keys are any bytes, JSON is text.
fn name(report: &Report<'_>, key: u32) -> String {
    String::from_utf8_lossy(report.simulation.traffic().key(key)).into_owned()
}

fn one<'a>(report: &Report<'_>, tried: &'a Tried, top: usize) -> One<'a> {
    let outcome = &tried.outcome;
    let offered = report.simulation.keys();
    let worst = tried.limits.iter().zip(&outcome.worst).map(|(limit, worst)| Worst {
        limit: limit.to_string(),
        period_us: worst.length.as_micros(),
        of: limit.count(),
        count: worst.count,
        key: (worst.count > 0).then(|| name(report, worst.key)),
        until_us: (worst.count > 0).then(|| worst.at.as_micros()),
    });
    let deciles = report.crowd.deciles(offered, outcome).into_iter();
    let affected = report.crowd.most_affected(outcome, top).into_iter().filter_map(|place| {
        let (offered, fared) = (offered.get(place as usize)?, outcome.keys.get(place as usize)?);
        Some(Affected {
            key: name(report, place),
            calls: offered.calls,
            denied: fared.denied,
            first_denied_us: fared.first_denied.as_micros(),
            last_denied_us: fared.last_denied.as_micros(),
        })
    });
    One {
        label: &tried.label,
        limit: tried.limits_text(),
        allowed: outcome.allowed,
        denied: outcome.denied,
        never: outcome.never,
        allowed_cost: outcome.allowed_cost,
        longest_run: (outcome.denied > 0).then(|| LongestRun {
            calls: outcome.longest_denials.most,
            key: name(report, outcome.longest_denials.key),
            until_us: outcome.longest_denials.at.as_micros(),
        }),
        longest_wait: (outcome.longest_wait.most > Span::ZERO).then(|| LongestWait {
            wait_us: outcome.longest_wait.most.as_micros(),
            key: name(report, outcome.longest_wait.key),
            at_us: outcome.longest_wait.at.as_micros(),
        }),
        peak: (outcome.denied > 0)
            .then(|| Peak { denied: outcome.peak.most, until_us: outcome.peak.at.as_micros() }),
        worst: worst.collect(),
        deciles: deciles
            .map(|decile| Decile {
                keys: decile.keys,
                offered_cost: decile.offered,
                allowed_cost: decile.allowed,
            })
            .collect(),
        above_p99: report.crowd.above_p99(offered, outcome).map(|above| Above {
            more_than_calls: above.calls,
            keys: above.keys,
            denied: above.denied,
        }),
        keys_affected: outcome.keys.iter().filter(|key| key.denied > 0).count(),
        most_affected: affected.collect(),
        allowed_cost_over_time: &outcome.allowed_bars,
        denied_over_time: &outcome.denied_bars,
        curves: Curves {
            from_us: outcome.focus.start.as_micros(),
            width_us: outcome.focus.width.as_micros(),
            window: &outcome.focus.window,
            room: &outcome.focus.room,
            room_max: outcome.focus.room_max,
        },
    }
}
