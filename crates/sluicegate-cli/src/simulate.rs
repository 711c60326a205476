//! `sluice simulate`: what limits would do to traffic.

mod candidate;
mod columns;
mod csv;
mod json;
mod output;
mod picture;
mod progress;
mod source;
mod table;
mod what_if;

use crate::Problem;
use crate::args::SimulateArgs;
use output::Outputs;
use sluicegate_sim::Traffic;
use sluicegate_sim::report::{Report, Tried};
use sluicegate_sim::simulate::Simulation;
use std::io::{self, ErrorKind, Write as _};

pub(crate) fn run(args: &SimulateArgs) -> Result<(), Problem> {
    if let Some(word) = args.stray.first() {
        return Err(format!(
            "{word:?} stands alone; quote limits and workloads as in --limit 'sliding-log 5/60s', and name a file with --trace, --log or --plot"
        ));
    }
    let candidates = candidate::read(&args.limits, &args.labels)?;
    // Before any work, so that nobody waits for a picture that cannot be written.
    let outputs = Outputs::open(args)?;
    let (source, traffic) = source::read(args, &candidates)?;
    tell_of_broken_lines(&traffic);
    let simulation = Simulation::new(&traffic, focus(args, &traffic)?);
    let bar = progress::of_calls(traffic.calls().len() as u64 * candidates.len() as u64);
    let mut tried = Vec::new();
    for candidate::Candidate { label, limits } in candidates {
        let outcome = simulation.run(&limits, |calls| bar.inc(calls)).map_err(|error| error.to_string())?;
        tried.push(Tried { label, limits, outcome });
    }
    bar.finish_and_clear();
    let report = Report { source, simulation, tried };
    if !outputs.use_stdout() {
        print(&table::of(&report))?;
        if traffic.keys() > 1 {
            print(&what_if::of(&report, args.top))?;
        }
        if args.terminal {
            print(&picture::in_terminal(&report, args))?;
        }
    }
    outputs.write(&report, args)
}

/// Writes to standard output; whoever reads it may have seen enough.
fn print(text: &str) -> Result<(), Problem> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("standard output cannot be written: {error}; check where it goes"))
        }
        _ => Ok(()),
    }
}

fn focus(args: &SimulateArgs, traffic: &Traffic) -> Result<Option<u32>, Problem> {
    let Some(name) = &args.focus else { return Ok(None) };
    match traffic.key_named(name.as_bytes()) {
        Some(key) => Ok(Some(key)),
        None => {
            Err(format!("--focus {name:?}: no call has this key; leave it out for the one that offers most"))
        }
    }
}

/// Says on standard error what was passed over.
fn tell_of_broken_lines(traffic: &Traffic) {
    let broken = traffic.broken();
    if broken.count == 0 {
        return;
    }
    let lines = match broken.count {
        1 => "1 line is no call and was".to_owned(),
        count => format!("{count} lines are no calls and were"),
    };
    let mut told = format!("sluice: {lines} passed over (--strict stops instead)\n");
    for line in &broken.first {
        told += &format!("  {line}\n");
    }
    let more = broken.count - broken.first.len() as u64;
    if more > 0 {
        told += &format!("  and {more} more\n");
    }
    // If this cannot be written there is nobody left to tell.
    let _ = io::stderr().write_all(told.as_bytes());
}
