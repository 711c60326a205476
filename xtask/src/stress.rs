//! The tests that a busy machine could disturb, again and again on a machine that is busy.
//!
//! A test of real servers, sockets, processes or timers must not fail because another program has
//! the processor. So they run while threads of ours keep every core busy, until one fails or all
//! rounds are over.

use crate::{ci, root, tools};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Instant;

const ROUNDS_DEFAULT: u32 = 10;

/// Where those tests are: a crate, and what the names of such tests contain, if not all are.
const CRATES: [(&str, &[&str]); 6] = [
    ("redis-testkit", &[]),
    ("sluicegate-redis", &[]),
    ("sluicegate-server", &[]),
    ("sluicegate-tower", &[]),
    ("sluicegate-cli", &["serve::", "check::", "replay::"]),
    ("sluicegate", &["real_time::", "runtimes::", "threads::", "blocking::", "timeout::", "clock::"]),
];

pub(crate) fn run(rounds: Option<&str>) -> Result<(), String> {
    let rounds = match rounds {
        Some(text) => text.parse().map_err(|_| format!("stress {text}: not a number of rounds"))?,
        None => ROUNDS_DEFAULT,
    };
    tools::install().map_err(|problem| format!("tools: {problem}"))?;
    let valkey = tools::valkey();
    println!("==> stress: building the tests");
    let tests = build()?;
    let busy = Busy::start();
    println!("==> stress: {rounds} rounds, while {} threads keep the processor busy", busy.threads.len());
    for round in 1..=rounds {
        let began = Instant::now();
        for test in &tests {
            test.passes(valkey.as_deref()).map_err(|failed| format!("round {round}: {failed}"))?;
        }
        println!("==> stress: round {round} of {rounds} passed in {:.0} s", began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// A program with tests.
struct Tests {
    crate_name: &'static str,
    filters: &'static [&'static str],
    program: PathBuf,
}

/// Builds all tests as `ci` does, and finds the programs of those that are to run.
fn build() -> Result<Vec<Tests>, String> {
    let arguments =
        ["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"];
    let built = ci::command(&arguments).stderr(Stdio::inherit()).output();
    let built = built.map_err(|error| format!("cargo does not start: {error}"))?;
    if !built.status.success() {
        return Err("the tests could not be built".to_owned());
    }
    let said = String::from_utf8_lossy(&built.stdout);
    let mut tests = Vec::new();
    for (crate_name, filters) in CRATES {
        let before = tests.len();
        let programs = said.lines().filter_map(|line| test_program(line, &folder(crate_name)));
        tests.extend(programs.map(|program| Tests { crate_name, filters, program }));
        if tests.len() == before {
            return Err(format!("{crate_name} has no tests; is it still called so?"));
        }
    }
    Ok(tests)
}

fn folder(crate_name: &str) -> PathBuf {
    root().join("crates").join(crate_name)
}

/// The program of tests that cargo says in this line it has built for the crate in that folder.
fn test_program(line: &str, folder: &Path) -> Option<PathBuf> {
    let after = |key: &str| line.split_once(key).map(|(_, rest)| rest);
    let (profile, _) = after("\"profile\":{")?.split_once('}')?;
    let (manifest, _) = after("\"manifest_path\":\"")?.split_once('"')?;
    let (program, _) = after("\"executable\":\"")?.split_once('"')?;
    let is_wanted = profile.contains("\"test\":true") && Path::new(manifest) == folder.join("Cargo.toml");
    is_wanted.then(|| PathBuf::from(program))
}

impl Tests {
    /// Runs them. If one fails, prints all that they said, and names it.
    fn passes(&self, valkey: Option<&Path>) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        // Where cargo would run them.
        command.args(self.filters).current_dir(folder(self.crate_name));
        if let Some(valkey) = valkey {
            command.env("VALKEY_SERVER", valkey);
        }
        let reported = |what: &str| format!("{} ({}): {what}", self.crate_name, self.program.display());
        let output = command.output().map_err(|error| reported(&format!("does not start: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stdout);
        print!("{said}");
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        Err(reported(&format!("failed: {}", failed_tests(&said).join(", "))))
    }
}

/// The names in lines such as `test serve::it_starts ... FAILED`.
fn failed_tests(said: &str) -> Vec<&str> {
    said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect()
}

/// As many threads that do nothing but spin as there are cores.
struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn start() -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let spin = |_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..cores).map(spin).collect();
        Busy { stop, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that only spins does not panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{failed_tests, test_program};
    use std::path::{Path, PathBuf};

    #[test]
    fn failed_tests_are_named() {
        let said = "running 2 tests\ntest a::b ... ok\ntest c::d ... FAILED\n\nfailures:\n    c::d\n";
        assert_eq!(failed_tests(said), ["c::d"]);
    }

    #[test]
    fn programs_of_tests_are_distinguished_from_others() {
        let line = |test| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{{"test":true}},"profile":{{"opt_level":"1","test":{test}}},"executable":"/t/it-1"}}"#
            )
        };
        assert_eq!(test_program(&line(true), Path::new("/a")), Some(PathBuf::from("/t/it-1")));
        assert_eq!(test_program(&line(true), Path::new("/b")), None);
        assert_eq!(test_program(&line(false), Path::new("/a")), None);
        assert_eq!(test_program("something else", Path::new("/a")), None);
    }
}
