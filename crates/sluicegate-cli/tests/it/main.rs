//! The command, run as a user runs it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod check;
mod clients;
mod clock_steps;
mod conformance;
mod explain;
mod mixed_attack;
mod overload;
mod pages;
mod pictures;
mod replay;
mod serve;
mod serving;
mod simulate;
mod store_attack;
mod validate;
mod wall_clock;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Runs `sluice` with arguments and standard input.
fn sluice(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // From a thread of its own, as the command may answer before it has read everything; it may
    // also stop reading.
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
