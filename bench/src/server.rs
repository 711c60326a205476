//! The server beside its rivals, over loopback. Everything here is bounded in count and time, and
//! every process that it starts is stopped with it.

pub mod client;
mod contenders;
mod cpu;
mod floor;
mod holds;
mod latency;
pub mod load;
pub mod options;
pub mod ours;
mod parity;
pub mod process;
pub mod redis;
mod replies;
pub mod requests;
mod threads;

use options::{HELP, Options};
use std::path::{Path, PathBuf};

/// What went wrong, as a sentence for a person.
pub type Outcome<T> = Result<T, String>;

pub fn run(arguments: &[&str]) -> Outcome<()> {
    if arguments.iter().any(|argument| matches!(*argument, "--help" | "-h" | "help")) {
        print!("{HELP}");
        return Ok(());
    }
    let mut options = Options::usual().parse(arguments, HELP)?;
    let what = std::mem::take(&mut options.what);
    let what: Vec<&str> = what.iter().map(String::as_str).collect();
    if let [] | ["cpu" | "threads" | "latency"] | ["holds", ..] = *what.as_slice() {
        options.build()?;
    }
    match *what.as_slice() {
        [] => {
            for table in [cpu::run, threads::run, latency::run] {
                table(&options)?;
                println!();
            }
            Ok(())
        }
        ["cpu"] => cpu::run(&options),
        ["threads"] => threads::run(&options),
        ["latency"] => latency::run(&options),
        ["holds"] => holds::run(&options, None),
        ["holds", which @ ("connections" | "flood" | "hostile")] => holds::run(&options, Some(which)),
        ["parity", folder] => parity::run(Path::new(folder)),
        [floor::CHILD, address] => {
            let address = address.parse().map_err(|_| format!("{address} is not an address"))?;
            floor::serve(address).map_err(|error| error.to_string())
        }
        _ => Err(format!("what is {:?}?\n\n{HELP}", what.join(" "))),
    }
}

/// Where cargo puts what it builds for the workspace in a folder.
fn target_folder(workspace: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from)
}
