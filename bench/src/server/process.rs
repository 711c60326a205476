//! Server processes: started on a free port of loopback, measured through `/proc`, and stopped
//! whatever happens.

use super::Outcome;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it accepts connections.
const START_MAX: Duration = Duration::from_secs(20);

/// A running server. It is killed when this is dropped, so also when the benchmark panics.
pub struct Process {
    pub name: String,
    pub address: SocketAddr,
    child: Child,
}

impl Process {
    /// Starts a program with arguments and waits until it accepts connections. On one core of its
    /// own, if one is given.
    pub fn start(
        name: &str,
        arguments: &[String],
        address: SocketAddr,
        core: Option<usize>,
    ) -> Outcome<Process> {
        // The kernel stops it with us, should we be stopped in a way that drops nothing.
        let with_us = ["setpriv", "--pdeathsig", "KILL"].map(str::to_owned);
        let pinned = core.map(|core| ["taskset".to_owned(), "-c".to_owned(), core.to_string()]);
        let words: Vec<&String> = with_us.iter().chain(pinned.iter().flatten()).chain(arguments).collect();
        let (program, rest) = words.split_first().ok_or("no program was named")?;
        let mut command = Command::new(program);
        command.args(rest).stdin(Stdio::null()).stdout(Stdio::null());
        if std::env::var_os("BENCH_SHOW_LOGS").is_none() {
            command.stderr(Stdio::null());
        }
        let child = command.spawn().map_err(|error| format!("{name}: {program} does not start: {error}"))?;
        let mut process = Process { name: name.to_owned(), address, child };
        process.wait_until_it_accepts()?;
        Ok(process)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time it has used so far, user and system, all threads.
    pub fn cpu(&self) -> Duration {
        cpu_of(self.id())
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<f64>().ok());
        kilobytes.unwrap_or(f64::NAN) * 1024.0
    }

    /// Returns `true` if it still runs: a server that an attack has ended must not look idle.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn wait_until_it_accepts(&mut self) -> Outcome<()> {
        let began = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!(
                    "{} ended at once ({status}); set BENCH_SHOW_LOGS=1 to see what it says",
                    self.name
                ));
            }
            if began.elapsed() > START_MAX {
                return Err(format!("{} accepts no connection at {}", self.name, self.address));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A loopback port without a listener.
pub fn free_address() -> SocketAddr {
    let listener =
        TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address")
}

/// Processor time of a process: nanoseconds by its threads' `schedstat`, or else clock ticks by
/// `stat`.
pub fn cpu_of(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let nanos: Option<u64> = threads
        .map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_ascii_whitespace().next()?.parse::<u64>().ok()
        })
        .sum();
    match nanos {
        Some(nanos @ 1..) => Duration::from_nanos(nanos),
        _ => ticks_of(process),
    }
}

/// The same in clock ticks of 10 ms, which every Linux tells.
fn ticks_of(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program may hold spaces and brackets; the fields after it do not.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    // utime and stime are the 14th and 15th of all, and two stand before the bracket.
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Keeps this process, and the threads it starts from now on, to one core.
pub fn keep_to_core(core: usize) -> Outcome<()> {
    change_self(Command::new("taskset").args(["-a", "-c", "-p", &core.to_string()]))
}

/// Lets this process, and the threads it starts from now on, run anywhere.
pub fn run_anywhere() -> Outcome<()> {
    // Not the standard library's count, which leaves out the cores that this process was kept from
    // before.
    let cores = fs::read_to_string("/sys/devices/system/cpu/online").map_err(|error| error.to_string())?;
    change_self(Command::new("taskset").args(["-a", "-c", "-p", cores.trim()]))
}

/// Lets this process, and the servers it starts from now on, open that many files: within what the
/// system allows, or else by asking it to allow more.
pub fn open_files(most: usize) -> Outcome<()> {
    let limited = |limit: String| change_self(Command::new("prlimit").arg(limit).arg("--pid"));
    limited(format!("--nofile={most}:")).or_else(|_| limited(format!("--nofile={most}:{most}")))
}

/// Runs a tool of util-linux on this very process.
fn change_self(command: &mut Command) -> Outcome<()> {
    match command.arg(std::process::id().to_string()).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end())),
        Err(error) => Err(format!("{command:?}: {error}; it is part of util-linux")),
    }
}
