//! Replays calls decided by Guava's own rate limiters on `smooth`, and reports where they differ.
//! The rows come from standard input; `guava/README.md` explains how to have Guava write them.

#![allow(clippy::print_stdout, reason = "an example prints for a person")]

use sluicegate_conformance::guava;
use std::process::ExitCode;

fn main() -> ExitCode {
    match guava::play(std::io::stdin().lock()) {
        Ok(report) => {
            println!(
                "{} calls in {} cases, {} denied: all equal",
                report.checks, report.cases, report.denied
            );
            ExitCode::SUCCESS
        }
        Err(mismatch) => {
            println!("{mismatch}");
            ExitCode::FAILURE
        }
    }
}
