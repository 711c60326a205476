//! Every example of the libraries: short enough to be read at a glance, and run, as each asserts
//! what it shows.

use crate::{ci, root};
use std::fs;
use std::process::Stdio;

/// No example is longer, in lines.
const LINES_MAX: usize = 40;

/// Whose examples are for readers.
const PACKAGES: [&str; 3] = ["sluicegate", "sluicegate-redis", "sluicegate-plot"];

pub(crate) fn run() -> Result<u64, String> {
    PACKAGES.into_iter().map(run_those_of).sum()
}

fn run_those_of(package: &str) -> Result<u64, String> {
    let folder = root().join("crates").join(package).join("examples");
    let files = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names = Vec::new();
    for file in files {
        let path = file.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // An example that needs a stage to play on has a folder: what is to be read is its
        // `main.rs`.
        let to_read = if path.is_dir() { path.join("main.rs") } else { path };
        let lines = fs::read_to_string(&to_read).map_err(|error| format!("{name}: {error}"))?.lines().count();
        if lines >= LINES_MAX {
            return Err(format!("{name} has {lines} lines; keep an example under {LINES_MAX}"));
        }
        names.push(name);
    }
    names.sort();
    for name in &names {
        let mut command =
            ci::command(&["run", "--quiet", "--locked", "--package", package, "--example", name]);
        let status = command.stdout(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(format!("{name} failed; run it with: cargo run -p {package} --example {name}"));
        }
        println!("example {name} ... ok");
    }
    u64::try_from(names.len()).map_err(|error| error.to_string())
}
