//! Everything that has to be clean before a change lands, in the order in which it fails fastest.

use crate::root;
use std::process::Command;
use std::time::Instant;

const STEPS: [(&str, &[&str]); 4] = [
    ("formatting", &["fmt", "--all", "--check"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]),
    ("documentation", &["doc", "--workspace", "--no-deps", "--locked"]),
    ("tests", &["test", "--workspace", "--locked"]),
];

pub(crate) fn run() -> Result<(), String> {
    for (name, arguments) in STEPS {
        println!("==> {name}: cargo {}", arguments.join(" "));
        let began = Instant::now();
        let status = Command::new(env!("CARGO"))
            .args(arguments)
            .current_dir(root())
            .env("RUSTDOCFLAGS", "--deny warnings")
            .status()
            .map_err(|error| format!("cargo does not start: {error}"))?;
        if !status.success() {
            return Err(format!("{name} failed; run it alone with: cargo {}", arguments.join(" ")));
        }
        println!("==> {name}: ok in {:.0} s", began.elapsed().as_secs_f64());
    }
    Ok(())
}
