//! Plays calls that Guava's own rate limiters have answered on `smooth`, and says where they differ. The rows come from
//! standard input; `guava/README.md` says how to have Guava write them.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use sluicegate_conformance::guava;
use std::process::ExitCode;

fn main() -> ExitCode {
    match guava::play(std::io::stdin().lock()) {
        Ok(report) => {
            println!(
                "{} calls in {} cases, {} refused: all equal",
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
