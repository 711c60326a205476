//! What the command line says.

use super::Outcome;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
The server beside its rivals, over loopback: cargo xtask bench server [WHAT] [OPTIONS]

cpu          CPU time per command, commands per second, with a million keys       4 minutes
threads      one worker thread and two                                            1 minute
latency      at half the peak, from the intended time of sending                  1 minute
holds        connections, flood and hostile, one after another                    8 minutes
  connections  ten thousand at once
  flood        endless new keys, and an offender at its limit
  hostile      clients that do not read, dawdle, lie and nest
parity DIR   what a real redis-cell answers, as CSV into a folder                  10 seconds

Without WHAT: cpu, threads and latency.

--sluice PATH        the server's program; otherwise it is built from this workspace
--sluice-args TEXT   its arguments, in which {config}, {address}, {port} and {threads} are filled in
--without-ours       only the rivals and the floor
--rounds N           interleaved rounds                                       6
--seconds S          of load in each measurement                              1
--keys N             resident keys                                            1000000
--connections N      of the load; of `connections`: 10000                     50
--flood N            new keys of the flood                                    100000000
--clients N          hostile clients of each kind                             100
--cores S,C          the server's core and the load's                         0,1

redis-server must be installed. redis-cell is the file that REDIS_CELL_SO names; by default 0.2.2, the newest published as
a crate, is built once. BENCH_SHOW_LOGS=1 shows what the servers say.
";

const SLUICE_ARGUMENTS: &str = "serve --config {config} --resp {address} --http off --threads {threads}";

pub struct Options {
    pub what: Vec<String>,
    /// The program of our server, `None` when only the rivals are wanted.
    pub sluice: Option<PathBuf>,
    pub sluice_arguments: String,
    pub without_ours: bool,
    pub rounds: usize,
    pub seconds: f64,
    pub keys: u64,
    pub connections: Option<usize>,
    pub flood: u64,
    pub clients: usize,
    pub server_core: usize,
    pub client_core: usize,
}

impl Options {
    /// The defaults.
    pub fn usual() -> Options {
        Options {
            what: Vec::new(),
            sluice: None,
            sluice_arguments: SLUICE_ARGUMENTS.to_owned(),
            without_ours: false,
            rounds: 6,
            seconds: 1.0,
            keys: 1_000_000,
            connections: None,
            flood: 100_000_000,
            clients: 100,
            server_core: 0,
            client_core: 1,
        }
    }

    /// Reads the words of the command line. `help` is what to print when one is not understood.
    pub fn parse(self, arguments: &[&str], help: &str) -> Outcome<Options> {
        let mut options = self;
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if !argument.starts_with("--") {
                options.what.push((*argument).to_owned());
                continue;
            }
            if *argument == "--without-ours" {
                options.without_ours = true;
                continue;
            }
            let value = rest.next().ok_or_else(|| format!("{argument} needs a value\n\n{help}"))?;
            match *argument {
                "--sluice" => options.sluice = Some(PathBuf::from(value)),
                "--sluice-args" => options.sluice_arguments = (*value).to_owned(),
                "--rounds" => options.rounds = number(argument, value)?.max(1) as usize,
                "--seconds" => {
                    let seconds = value.parse().ok().filter(|seconds| (0.05..=60.0).contains(seconds));
                    options.seconds = seconds.ok_or_else(|| format!("--seconds {value}: use 0.05 to 60"))?;
                }
                "--keys" => options.keys = number(argument, value)?.max(1),
                "--connections" => options.connections = Some(number(argument, value)?.max(1) as usize),
                "--flood" => options.flood = number(argument, value)?,
                "--clients" => options.clients = number(argument, value)?.max(1) as usize,
                "--cores" => {
                    let (server, client) =
                        value.split_once(',').ok_or_else(|| format!("--cores {value}: use two, like 0,1"))?;
                    options.server_core = number(argument, server)? as usize;
                    options.client_core = number(argument, client)? as usize;
                }
                _ => return Err(format!("what is {argument:?}?\n\n{help}")),
            }
        }
        Ok(options)
    }

    /// Builds our server, unless one was named or only the rivals are wanted. To be called before
    /// anything is pinned.
    pub fn build(&mut self) -> Outcome<()> {
        if self.without_ours || self.sluice.is_some() {
            return Ok(());
        }
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args([
            "build",
            "--profile",
            "dist",
            "--locked",
            "--package",
            "sluicegate-cli",
            "--bin",
            "sluice",
        ]);
        match command.current_dir(workspace).status() {
            Ok(status) if status.success() => {
                self.sluice = Some(super::target_folder(workspace).join("dist/sluice"));
                Ok(())
            }
            _ => Err("sluice could not be built; name one with --sluice".to_owned()),
        }
    }
}

fn number(name: &str, value: &str) -> Outcome<u64> {
    value.replace('_', "").parse().map_err(|_| format!("{name} {value}: not a whole number"))
}
