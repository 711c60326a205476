//! The chores of this workspace, as a program so that they run anywhere Rust does.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to a person")]

mod ci;
mod examples;
mod integration;
mod stress;
mod tidy;
mod tools;
mod vectors;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
cargo xtask ci        every check and test, as CI runs them
cargo xtask tidy      words and widths: docs/glossary.md, checked; `ci` includes it
cargo xtask loom      locks and lock-free code under a model checker, which `ci` includes
cargo xtask stress    the tests of servers, sockets and timers, 10 times on a busy machine; `stress 50` is 50 times
cargo xtask integration
                      real clients (redis-py, ioredis, node-redis) against the server
cargo xtask attack    every attack at once on a server, for 60 s; `attack 3600` is for an hour;
                      `attack --store` attacks a shared store through another server
cargo xtask bench     ours beside the rivals, interleaved; `cargo xtask bench --help` lists the tables
cargo xtask plots     redraw the pictures of the documentation
cargo xtask vectors   rewrite the conformance vectors from the model's answers";

fn main() -> ExitCode {
    let chore = std::env::args().nth(1);
    let done = match chore.as_deref() {
        Some("ci") => ci::run(),
        Some("tidy") => tidy::run(),
        Some("loom") => ci::loom().map(drop),
        Some("stress") => stress::run(std::env::args().nth(2).as_deref()),
        Some("integration") => integration::run(),
        Some("attack") => match std::env::args().nth(2).as_deref() {
            Some("--store") => attack("store_attack", std::env::args().nth(3).as_deref().or(Some("10"))),
            seconds => attack("mixed_attack", seconds),
        },
        Some("bench") => bench(),
        Some("plots") => plots(),
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

/// Draws the pictures with the test that otherwise says when one is out of date.
fn plots() -> Result<(), String> {
    let arguments = ["test", "--locked", "--package", "sluicegate-cli", "--test", "it", "every_picture"];
    finish(ci::command(&arguments).env("SLUICE_DRAW_PICTURES", "1"), "a picture could not be drawn")
}

/// Attacks a release build, and prints what good clients noticed.
fn attack(test: &str, seconds: Option<&str>) -> Result<(), String> {
    let arguments =
        format!("test --release --locked --package sluicegate-cli --test it {test} -- --nocapture");
    let mut command = ci::command(&arguments.split(' ').collect::<Vec<_>>());
    finish(command.env("SLUICE_ATTACK_SECONDS", seconds.unwrap_or("60")), "the server was harmed")
}

/// Hands the rest of the arguments on to the benchmark program.
fn bench() -> Result<(), String> {
    let mut command = ci::command(&["run", "--release", "--locked", "--"]);
    command.args(std::env::args_os().skip(2));
    finish(command.current_dir(root().join("bench")), "the benchmark failed")
}

/// Runs a command to its end.
fn finish(command: &mut Command, failed: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(failed.to_owned()),
        Err(error) => Err(format!("cargo does not start: {error}")),
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}
