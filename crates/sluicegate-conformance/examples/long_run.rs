//! Compares the core with the model on millions of random decisions:
//!
//! ```text
//! cargo run --release -p sluicegate-conformance --example long_run -- DECISIONS [SEED]
//! ```
//!
//! DECISIONS (ten million by default) is per algorithm, for lists of limits, and for the verbs. The
//! run stops at the first difference and prints the trace that shows it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints for a person")]

use sluicegate::clock::ManualClock;
use sluicegate::{Limit, MemoryStore};
use sluicegate_conformance::{
    BackendSubject, Changes, CoreKey, CoreSubject, MemoryKeys, Mismatch, Report, random_changes, random_keys,
    random_traces, random_verbs,
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
        random_traces(algorithm, seed, decisions, CoreSubject::new, &mut report)?;
        print(algorithm.unwrap_or("lists of limits"), report, began);
    }
    let (mut report, began) = (Report::default(), Instant::now());
    random_verbs(seed, decisions, true, CoreKey::new, &mut report)?;
    print("all verbs", report, began);
    let (mut report, began) = (Report::default(), Instant::now());
    random_verbs(seed, decisions, false, BackendSubject::memory, &mut report)?;
    print("in the library", report, began);
    let (mut report, began) = (Report::default(), Instant::now());
    random_keys(seed, decisions, (false, false), MemoryKeys::in_store, &mut report)?;
    print("several keys", report, began);
    let (mut report, began) = (Report::default(), Instant::now());
    random_keys(seed, decisions, (false, true), MemoryKeys::of_one_limiter, &mut report)?;
    print("of one limiter", report, began);
    let (mut report, began) = (Report::default(), Instant::now());
    random_changes(seed, decisions, true, Changes::All, CoreKey::new, &mut report)?;
    print("changing limits", report, began);
    let (mut report, began) = (Report::default(), Instant::now());
    random_changes(seed, decisions, false, Changes::All, BackendSubject::memory, &mut report)?;
    print("changing, library", report, began);
    let shared = |limits: &[Limit], start| {
        let store = MemoryStore::builder().clock(ManualClock::at(start)).max_keys(64).build();
        BackendSubject::shared_memory(limits, &store.unwrap_or_else(|error| panic!("{error}")), 7)
    };
    let (mut report, began) = (Report::default(), Instant::now());
    random_changes(seed, decisions, false, Changes::All, shared, &mut report)?;
    print("changing, shared", report, began);
    Ok(())
}

fn print(what: &str, Report { cases, checks, denied, returned, .. }: Report, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{what:<16} {checks:>10} equal in {cases} cases, {denied} denied, {returned} cancelled, {seconds:.0} s"
    );
}
