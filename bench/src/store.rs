//! Our scripts beside the scripts people use, on one redis-server, and the way to them through our
//! server.

mod contests;
mod cpu;
mod memory;
mod ours;
mod script;
mod through;

use crate::server::Outcome;
use crate::server::options::Options;

const HELP: &str = "\
Our scripts compared with the usual ones, on one redis-server: cargo xtask bench store [WHAT] [OPTIONS]

cpu          CPU time of redis-server per decision                                4 minutes
memory       its memory per key                                                   1 minute
through      decisions per second through sluice serve, compared with raw EVALSHA 1 minute

Without WHAT: all three.

--sluice PATH        the server's program; otherwise it is built from this workspace
--sluice-args TEXT   its arguments, in which {config}, {address}, {port} and {threads} are filled in
--without-ours       no server of ours, so not the third table
--rounds N           interleaved rounds                                       15
--seconds S          of load in each measurement                              0.4
--keys N             resident keys of each script                             100000
--connections N      of the load                                              50
--cores S,C          the core of redis-server, and that of the load           0,1

redis-server must be installed. The rivals' scripts are in bench/lua. BENCH_SHOW_LOGS=1 shows what the servers say.
";

/// Resident keys by default: too many for the processor's caches.
const KEYS: u64 = 100_000;

/// Many short rounds: what is compared runs closer together, and one bad moment of the machine
/// spoils one of many.
const ROUNDS: usize = 15;
const SECONDS: f64 = 0.4;

pub fn run(arguments: &[&str]) -> Outcome<()> {
    if arguments.iter().any(|argument| matches!(*argument, "--help" | "-h" | "help")) {
        print!("{HELP}");
        return Ok(());
    }
    let usual = Options { rounds: ROUNDS, seconds: SECONDS, keys: KEYS, ..Options::usual() };
    let mut options = usual.parse(arguments, HELP)?;
    let what = std::mem::take(&mut options.what);
    let what: Vec<&str> = what.iter().map(String::as_str).collect();
    if let [] | ["through"] = *what.as_slice() {
        options.build()?;
    }
    match *what.as_slice() {
        [] => {
            for table in [cpu::run, memory::run, through::run] {
                table(&options)?;
                println!();
            }
            Ok(())
        }
        ["cpu"] => cpu::run(&options),
        ["memory"] => memory::run(&options),
        ["through"] => through::run(&options),
        _ => Err(format!("what is {:?}?\n\n{HELP}", what.join(" "))),
    }
}
