//! Ends a server whose test process died.
//!
//! A test that panics drops its servers, and dropping ends them. A test process that is killed drops nothing. So beside each server runs
//! a shell that waits for the end of its input, which is a pipe from the test process: however that process ends, the system closes
//! the pipe, and the shell kills the server and removes its data.

use std::path::Path;
use std::process::{Child, Command, Stdio};

// A Ctrl-C goes to the shell as well: it must outlive it to do its work.
const SCRIPT: &str = r#"trap "" INT TERM HUP; read -r _; kill -9 "$1"; rm -rf "$2""#;

#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    pub(crate) fn over(process: u32, data: &Path) -> Watchdog {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "watchdog", &process.to_string()]).arg(data);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Watchdog(command.spawn().expect("a shell as watchdog"))
    }
}

impl Drop for Watchdog {
    /// The server has ended: the shell must not see the end of its input, lest it kills whoever gets the server's number next.
    fn drop(&mut self) {
        let _ = self.0.kill();
        // `wait` closes the pipe first, which does not matter to a process that has got its SIGKILL.
        let _ = self.0.wait();
    }
}
