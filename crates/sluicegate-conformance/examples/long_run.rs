//! Random decisions by the million, the core against the model, for as long as you like:
//!
//! ```text
//! cargo run --release -p sluicegate-conformance --example long_run -- DECISIONS [SEED]
//! ```
//!
//! DECISIONS (ten million unless said) is for each algorithm, for lists of limits, and for the verbs. It stops at the
//! first difference, with the trace that shows it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to a person")]

use sluicegate::Limit;
use sluicegate_conformance::{
    AccountInCore, InBackend, InCore, Mismatch, Report, random_traces, random_verbs,
};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (Ok(decisions), Ok(seed)) = (arguments.next().transpose(), arguments.next().transpose()) else {
        eprintln!("usage: long_run [DECISIONS] [SEED], both whole numbers");
        return ExitCode::from(2);
    };
    let (decisions, seed) = (decisions.unwrap_or(10_000_000), seed.unwrap_or(1));
    println!("seed {seed}, {decisions} decisions each");
    match run(decisions, seed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(mismatch) => {
            println!("{mismatch}");
            ExitCode::FAILURE
        }
    }
}

fn run(decisions: u64, seed: u64) -> Result<(), Mismatch> {
    for algorithm in Limit::CHECKS.into_iter().map(Some).chain([None]) {
        let (mut report, began) = (Report::default(), Instant::now());
        random_traces(algorithm, seed, decisions, InCore::new, &mut report)?;
        tell(algorithm.unwrap_or("lists of limits"), report, began);
    }
    let (mut report, began) = (Report::default(), Instant::now());
    random_verbs(seed, decisions, true, AccountInCore::new, &mut report)?;
    tell("all verbs", report, began);
    let (mut report, began) = (Report::default(), Instant::now());
    random_verbs(seed, decisions, false, InBackend::memory, &mut report)?;
    tell("in the library", report, began);
    Ok(())
}

fn tell(what: &str, Report { cases, checks, denied, returned, .. }: Report, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{what:<16} {checks:>10} equal in {cases} cases, {denied} denied, {returned} cancelled, {seconds:.0} s"
    );
}
