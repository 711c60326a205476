//! Everything that has to be clean before a change lands, in the order in which it fails fastest.

mod published;

use crate::{examples, root, tidy, tools};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A name, and the arguments of cargo.
type Step = (&'static str, &'static [&'static str]);

/// The variable by which tests find a tool, and its path if there is one.
type Tool = (&'static str, Option<PathBuf>);

const LINTS: [Step; 2] = [
    ("formatting", &["fmt", "--all", "--check"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]),
];

const TESTS: [Step; 3] = [
    ("documentation", &["doc", "--workspace", "--no-deps", "--locked"]),
    ("tests", &["test", "--workspace", "--locked"]),
    // A workspace of its own, which a change must not leave behind. (What the fuzz targets do is in
    // the tests.)
    ("benchmarks", &["check", "--locked", "--manifest-path", "bench/Cargo.toml"]),
];

pub(crate) fn run() -> Result<(), String> {
    tools::install().map_err(|problem| format!("tools: {problem}"))?;
    let tools = [
        ("VALKEY_SERVER", tools::valkey()),
        (tools::REDIS_PY_VARIABLE, Some(tools::redis_py().map_err(|problem| format!("tools: {problem}"))?)),
    ];
    println!("==> tidy: words and widths");
    tidy::run().map_err(|problem| format!("tidy: {problem}"))?;
    let mut total = steps(&LINTS, &tools)?;
    println!("==> features: each published crate with each choice of its features");
    let began = Instant::now();
    published::lint().map_err(|problem| format!("features: {problem}"))?;
    println!("==> features: ok in {:.0} s", began.elapsed().as_secs_f64());
    total.add(&steps(&TESTS, &tools)?);
    println!("==> examples: cargo run --example for each");
    total.passed += examples::run().map_err(|problem| format!("examples: {problem}"))?;
    total.add(&loom()?);
    println!("total: {} passed, {} failed", total.passed, total.failed);
    Ok(())
}

fn steps(steps: &[Step], tools: &[Tool]) -> Result<Tests, String> {
    let mut total = Tests::default();
    for (name, arguments) in steps {
        println!("==> {name}: cargo {}", arguments.join(" "));
        let began = Instant::now();
        let tests = cargo(arguments, tools).map_err(|problem| format!("{name}: {problem}"))?;
        println!("==> {name}: ok in {:.0} s", began.elapsed().as_secs_f64());
        total.add(&tests);
    }
    Ok(total)
}

/// The synchronisation of the store, of leases, breakers and bulkheads under a model checker, in
/// every order in which threads can meet. The locks are replaced when it is compiled, so it has a
/// target folder of its own.
pub(crate) fn loom() -> Result<Tests, String> {
    const ARGUMENTS: &str = "test --locked --package sluicegate --package sluicegate-guard --test loom \
                             --target-dir=target/loom";
    println!("==> loom: RUSTFLAGS='--cfg loom' cargo {ARGUMENTS}");
    let began = Instant::now();
    let mut command = command(&ARGUMENTS.split_ascii_whitespace().collect::<Vec<_>>());
    command.env("RUSTFLAGS", "--cfg loom");
    let tests = run_counting(command).map_err(|problem| format!("loom: {problem}"))?;
    if tests.passed == 0 {
        return Err("loom: no model ran".to_owned());
    }
    println!("==> loom: ok in {:.0} s", began.elapsed().as_secs_f64());
    Ok(tests)
}

/// How many tests ran, over all test binaries.
#[derive(Default)]
pub(crate) struct Tests {
    passed: u64,
    failed: u64,
}

/// Cargo with these arguments, at the root of the workspace.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(root()).env("RUSTDOCFLAGS", "--deny warnings");
    // Cargo has set variables about our own package. Build scripts that read them would run again,
    // and what depends on them would be built again, whenever a chore follows a plain `cargo test`.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

fn cargo(arguments: &[&str], tools: &[Tool]) -> Result<Tests, String> {
    let failed = |problem| format!("{problem}; run it alone with: cargo {}", arguments.join(" "));
    let mut command = command(arguments);
    for (variable, path) in tools {
        if let Some(path) = path {
            command.env(variable, path);
        }
    }
    run_counting(command).map_err(failed)
}

/// Runs a command, prints its output and counts the tests in it.
fn run_counting(mut command: Command) -> Result<Tests, String> {
    let spawned = command.stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| format!("cargo does not start: {error}"))?;
    let mut tests = Tests::default();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufReader::lines) {
        let line = line.map_err(|error| format!("what cargo prints cannot be read: {error}"))?;
        println!("{line}");
        tests.count(&line);
    }
    let status = child.wait().map_err(|error| format!("cargo is lost: {error}"))?;
    if status.success() { Ok(tests) } else { Err("failed".to_owned()) }
}

impl Tests {
    fn add(&mut self, others: &Tests) {
        self.passed += others.passed;
        self.failed += others.failed;
    }

    /// Adds up `test result: ok. 5 passed; 0 failed; ...`.
    fn count(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let number = |word: &str| {
            let words: Vec<&str> = result.split([' ', ';']).collect();
            words
                .windows(2)
                .find(|pair| pair[1] == word)
                .and_then(|pair| pair[0].parse::<u64>().ok())
                .unwrap_or(0)
        };
        self.passed += number("passed");
        self.failed += number("failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_binaries_are_added_up() {
        let mut tests = Tests::default();
        tests.count(
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        tests.count("test result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
        tests.count("something else 3 passed");
        assert_eq!((tests.passed, tests.failed), (17, 1));
    }
}
