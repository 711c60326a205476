//! `sluice simulate`: what limits would do to traffic.

mod candidate;
pub(crate) mod columns;
mod csv;
mod json;
pub(crate) mod output;
pub(crate) mod picture;
mod progress;
mod source;
mod table;
mod what_if;

use crate::Problem;
use crate::args::SimulateArgs;
use output::{Outputs, print};
use sluicegate_sim::report::Report;
use sluicegate_sim::simulate::Simulation;
use sluicegate_sim::{Traffic, human};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The longest title in letters.
pub(crate) const TITLE_MAX: usize = 120;

pub(crate) fn run(args: &SimulateArgs) -> Result<(), Problem> {
    check(args)?;
    let candidates = candidate::read(&args.limits, &args.labels)?;
    // Checked before any work, so that no time is spent on a picture that cannot be written.
    let outputs = Outputs::open(args)?;
    let (source, traffic) = source::read(args, &candidates)?;
    report_skipped_lines(&traffic);
    let simulation = Simulation::new(&traffic, focus(args, &traffic)?);
    let mut report = Report::new(source, simulation);
    // A limit that paces may need two runs.
    let is_paced = candidates.iter().flat_map(|(_, limits)| limits).any(|limit| limit.algorithm() == "pacer");
    let times = candidates.len() as u64 * if is_paced { 2 } else { 1 };
    let bar = progress::of_calls(traffic.calls().len() as u64 * times);
    report.run(&candidates, |calls| bar.inc(calls)).map_err(|error| error.to_string())?;
    bar.finish_and_clear();
    if !outputs.use_stdout() {
        print(table::of(&report).as_bytes())?;
        if traffic.keys() > 1 || args.log.is_some() {
            print(what_if::of(&report, args.top).as_bytes())?;
        }
        if args.terminal {
            print(picture::in_terminal(&report, args).as_bytes())?;
        }
    }
    outputs.write(&report, args)
}

/// Rejects options that would have no effect.
fn check(args: &SimulateArgs) -> Result<(), Problem> {
    if let Some(word) = args.stray.first() {
        return Err(format!(
            "{word:?} stands alone; quote limits and workloads as in --limit 'sliding-log 5/60s', and name a file with --trace, --log or --plot"
        ));
    }
    let title = args.title.as_deref().unwrap_or_default().chars().count();
    if title > TITLE_MAX {
        return Err(format!("a title of {title} letters is above the maximum, {TITLE_MAX}; shorten it"));
    }
    for (place, view) in args.show.iter().enumerate() {
        if args.show.get(..place).is_some_and(|earlier| earlier.contains(view)) {
            let view = format!("{view:?}").to_lowercase();
            return Err(format!("--show has {view} twice; name each view once, as in --show window,room"));
        }
    }
    let to_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    if args.terminal && [&args.csv, &args.series, &args.keys, &args.json].into_iter().any(to_stdout) {
        let problem = "--terminal draws on standard output, where a file goes too; write the file elsewhere";
        return Err(problem.to_owned());
    }
    Ok(())
}

fn focus(args: &SimulateArgs, traffic: &Traffic) -> Result<Option<u32>, Problem> {
    let Some(name) = &args.focus else { return Ok(None) };
    match traffic.key_named(name.as_bytes()) {
        Some(key) => Ok(Some(key)),
        None => Err(format!("--focus {name:?}: no call has this key; leave --focus out for the busiest key")),
    }
}

/// Reports on standard error which lines were skipped.
fn report_skipped_lines(traffic: &Traffic) {
    let broken = traffic.broken();
    if broken.count == 0 {
        return;
    }
    let all = broken.count + traffic.calls().len() as u64;
    let part = human::percent(broken.count, all);
    let malformed = human::many(broken.count, "malformed line");
    let mut report = format!("sluice: skipped {malformed} ({part}); --strict stops at the first\n");
    for line in &broken.first {
        report += &format!("  {line}\n");
    }
    let more = broken.count - broken.first.len() as u64;
    if more > 0 {
        report += &format!("  and {} more\n", human::count(more));
    }
    // Standard error is closed: there is no one to report this to.
    let _ = io::stderr().write_all(report.replace(human::TIE, " ").as_bytes());
}
