//! Programs that the tests run and that no crate brings.

use std::process::{Command, Stdio};

/// What has to be there, and the Debian package that brings it.
const TOOLS: [(&str, &str); 1] = [("redis-cli", "redis-tools")];

/// Installs what is missing, on a machine where that can be done.
pub(crate) fn install() -> Result<(), String> {
    let missing: Vec<&str> =
        TOOLS.into_iter().filter(|(tool, _)| !is_there(tool)).map(|(_, package)| package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("==> tools: apt-get install {}", missing.join(" "));
    let by_hand = || format!("install {} and run this again", missing.join(" and "));
    apt_get(&["update"]).map_err(|problem| format!("{problem}; {}", by_hand()))?;
    let arguments = [&["install", "--yes", "--no-install-recommends"], missing.as_slice()].concat();
    apt_get(&arguments).map_err(|problem| format!("{problem}; {}", by_hand()))
}

fn is_there(tool: &str) -> bool {
    let mut command = Command::new(tool);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn apt_get(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("apt-get {} failed", arguments.join(" "))),
        Err(error) => Err(format!("apt-get does not start: {error}")),
    }
}
