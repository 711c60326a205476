//! `sluice`: try a limit before you deploy it, serve it, ask for it.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap fails the test"))]

mod args;
mod check;
mod explain;
mod overload;
mod replay;
mod serve;
mod simulate;
mod validate;

use args::{Args, Command};
use clap::Parser as _;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

/// What the command could not do, in one line for each reason.
type Problem = String;

fn main() -> ExitCode {
    let success = |()| ExitCode::SUCCESS;
    let done = match Args::parse().command {
        Command::Replay(args) => replay::run(&args).map(success),
        Command::Explain(args) => explain::run(&args).map(success),
        Command::Simulate(args) => simulate::run(&args).map(success),
        Command::Overload(args) => overload::run(&args).map(success),
        Command::Serve(args) => serve::run(*args).map(success),
        Command::Check(args) => check::run(&args),
        Command::Validate(args) => validate::run(*args).map(success),
    };
    done.unwrap_or_else(|problem: Problem| {
        for line in problem.lines() {
            // Standard error is closed: there is no one to report this to.
            let _ = writeln!(io::stderr(), "sluice: {line}");
        }
        ExitCode::from(2)
    })
}

/// Writes the output. A reader may close the pipe early: `sluice ... | head`.
fn print(text: &str) -> Result<(), Problem> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(()),
    }
}
