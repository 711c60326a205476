//! A running `sluice serve` for a test: the real command on free ports, whose log says where it
//! listens.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Long enough that only a server that has stopped answering takes it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Serving {
    child: Child,
    lines: Receiver<String>,
    /// Everything that was logged so far, as far as anybody has waited.
    pub(crate) log: Vec<String>,
}

impl Serving {
    /// Runs `sluice serve` with these arguments, RESP on any free port and no HTTP.
    pub(crate) fn start(arguments: &[&str]) -> Serving {
        Serving::spawn(
            Command::new(env!("CARGO_BIN_EXE_sluice")).arg("serve").args(free_port()).args(arguments),
        )
    }

    /// Runs a command that becomes a server.
    pub(crate) fn spawn(command: &mut Command) -> Serving {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = channel();
        // The log is always read, as a full pipe would stop the server.
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Serving { child, lines, log: Vec::new() }
    }

    /// Waits for a line of the log that contains this, and tells it.
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("the log never says {part:?}:\n{}", self.log.join("\n"));
            };
            self.log.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Where it listens for RESP.
    pub(crate) fn resp(&mut self) -> String {
        let line = self.wait_for("listening for RESP on ");
        let address = line.split("listening for RESP on ").nth(1).unwrap();
        address.split(',').next().unwrap().to_owned()
    }

    /// The resident memory of the server, in kB.
    #[cfg(target_os = "linux")]
    pub(crate) fn memory_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> ExitStatus {
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it does not end:\n{}", self.log.join("\n"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn free_port() -> [&'static str; 4] {
    ["--resp", "127.0.0.1:0", "--http", "off"]
}

/// A client that speaks RESP by hand.
pub(crate) fn client(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

pub(crate) fn ping(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    if &reply == b"+PONG\r\n" {
        return Ok(());
    }
    Err(std::io::Error::other(String::from_utf8_lossy(&reply).into_owned()))
}

/// A folder for the files of one test, gone with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Writes a file and tells its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Makes a certificate for loopback, and tells the paths of it and its key.
    pub(crate) fn certificate(&self) -> [String; 2] {
        let made = rcgen::generate_simple_self_signed([String::from("127.0.0.1")]).unwrap();
        [self.write("cert.pem", &made.cert.pem()), self.write("key.pem", &made.signing_key.serialize_pem())]
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
