//! Kills a server whose test process died.
//!
//! A test that panics drops its servers, which stops them. A test process that is killed drops
//! nothing. So a shell runs beside each server and waits for the end of its input, a pipe from the
//! test process: however that process ends, the system closes the pipe, and the shell kills the
//! server and removes its data.

use std::path::Path;
use std::process::{Child, Command, Stdio};

// A Ctrl-C reaches the shell as well, which must survive it to do its work.
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
    /// The server has ended. The shell must not see the end of its input: it would kill the process
    /// that gets the server's id next.
    fn drop(&mut self) {
        let _ = self.0.kill();
        // `wait` closes the pipe first, which does not matter to a process that was killed.
        let _ = self.0.wait();
    }
}
