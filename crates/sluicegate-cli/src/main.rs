//! `sluice`: try a limit before you deploy it.

mod args;
mod explain;
mod replay;
mod simulate;

use args::{Args, Command};
use clap::Parser as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// What the command could not do, in one line.
type Problem = String;

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Replay(args) => replay::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Simulate(args) => simulate::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // If even this cannot be written there is nobody left to tell.
            let _ = writeln!(io::stderr(), "sluice: {problem}");
            ExitCode::from(2)
        }
    }
}
