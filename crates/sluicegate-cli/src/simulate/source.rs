//! Where the calls come from: a workload, a trace or a log.

use super::candidate::Candidate;
use super::progress;
use crate::Problem;
use crate::args::SimulateArgs;
use indicatif::ProgressBar;
use sluicegate::Limit;
use sluicegate_core::Span;
use sluicegate_core::bounds::COUNT_MAX;
use sluicegate_sim::Traffic;
use sluicegate_sim::human::printable;
use sluicegate_sim::traffic::workload::{LASTS_MAX, Workload, generate};
use sluicegate_sim::traffic::{Reading, TrafficError, csv, log};
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal as _, Read};
use std::path::Path;

/// A workload without `for=` lasts for this many of the limits' longest periods.
const PERIODS: u64 = 10;
/// The most workloads at the same time.
const WORKLOADS_MAX: usize = 32;

/// The calls, and in a few words where they come from.
pub(super) fn read(args: &SimulateArgs, candidates: &[Candidate]) -> Result<(String, Traffic), Problem> {
    let reading = Reading { strict: args.strict, calls_max: args.max_calls };
    if let Some(path) = &args.log {
        let format = args.format.as_deref().map(str::parse).transpose();
        let format = format.map_err(|error: log::FormatError| format!("--format: {error}"))?;
        let key = args.key.as_deref().unwrap_or("ip");
        let fields = log::Fields::new(key, args.time.as_deref(), args.cost.as_deref());
        let read = |input: Box<dyn Read>| log::read(input, format, &fields, reading);
        return from_file(path, read).map(|traffic| (format!("{} by {key}", name(path)), traffic));
    }
    if let Some(path) = &args.trace {
        let read = |input: Box<dyn Read>| csv::read(input, reading);
        return from_file(path, read).map(|traffic| (name(path), traffic));
    }
    let texts = match args.workloads.as_slice() {
        [] => vec![usual(candidates)],
        given => given.to_vec(),
    };
    if texts.len() > WORKLOADS_MAX {
        let many = texts.len();
        return Err(format!("{many} workloads are above the maximum, {WORKLOADS_MAX}; leave some out"));
    }
    let workloads = texts.iter().map(|text| text.parse::<Workload>()).collect::<Result<Vec<_>, _>>();
    let workloads = workloads.map_err(|error| error.to_string())?;
    let traffic = generate(&workloads, args.seed, lasts(candidates), reading, progress::of_making());
    let traffic = traffic.map_err(|error| match error {
        TrafficError::TooMany(most) => {
            let said = printable(&texts.join(" and "));
            format!("{said} makes more than {most} calls; shorten it with for=, or raise --max-calls")
        }
        error => error.to_string(),
    })?;
    let texts: Vec<String> =
        texts.iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let seed = if workloads.iter().any(Workload::is_random) {
        format!(", seed {}", args.seed)
    } else {
        String::new()
    };
    Ok((texts.join(" and ") + &seed, traffic))
}

fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { printable(&path.display().to_string()) }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn from_file(
    path: &Path,
    read: impl FnOnce(Box<dyn Read>) -> Result<Traffic, TrafficError>,
) -> Result<Traffic, Problem> {
    let problem = |error: TrafficError| match error {
        TrafficError::TooMany(most) => {
            format!("{} has more than {most} calls; take a part of them, or raise --max-calls", name(path))
        }
        error => format!("{}: {error}", name(path)),
    };
    if is_stdin(path) {
        let stdin = io::stdin().lock();
        // Typed input needs no progress report.
        let bar = if stdin.is_terminal() { ProgressBar::hidden() } else { progress::of_bytes(None) };
        return read(Box::new(bar.wrap_read(stdin))).map_err(problem);
    }
    let file = File::open(path)
        .map_err(|error| format!("{} cannot be read: {error}; check the name", name(path)))?;
    let bar = progress::of_bytes(file.metadata().ok().filter(Metadata::is_file).map(|about| about.len()));
    read(Box::new(bar.wrap_read(file))).map_err(problem)
}

/// Twice the rate of the first limit, at random.
fn usual(candidates: &[Candidate]) -> String {
    let first = candidates.first().and_then(|(_, limits)| limits.first());
    let (count, period) = first.map_or((1, Span::from_micros(1)), |limit| (limit.count(), limit.period()));
    format!("poisson {}/{period}", count.saturating_mul(2).min(COUNT_MAX))
}

fn lasts(candidates: &[Candidate]) -> Span {
    let periods = candidates.iter().flat_map(|(_, limits)| limits).map(Limit::period);
    let longest = periods.max().unwrap_or_default().as_micros();
    Span::from_micros(longest.saturating_mul(PERIODS)).min(LASTS_MAX)
}
