//! The chores of this workspace, as a program so that they run anywhere Rust does.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to a person")]

mod ci;
mod vectors;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask ci        every check and test, as CI runs them
cargo xtask vectors   write the conformance vectors anew from the model's answers";

fn main() -> ExitCode {
    let chore = std::env::args().nth(1);
    let done = match chore.as_deref() {
        Some("ci") => ci::run(),
        Some("vectors") => vectors::write(),
        _ => Err(format!("no such chore\n{USAGE}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}
