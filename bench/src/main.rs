//! Ours beside the rivals, interleaved in one run: `cargo run --release` in this folder.
//!
//! Each contender is measured in short rounds, one after another, and the rounds are repeated; what
//! is printed is the median round, so that a noisy moment of the machine hits all alike and counts
//! for none.

mod budgets;
mod core_decision;
mod flood;
mod histogram;
mod input;
mod keyed;
mod measure;
mod memory;
mod protect;
mod replay;
mod server;
mod simulate;
mod steady;
mod store;
mod tower;
mod waiting;
mod walk;

use std::process::ExitCode;

const HELP: &str = "\
Sluicegate compared with its rivals. Every table is Markdown for docs/benchmarks.md.

    cargo run --release -- [WHAT [NUMBER]]

core [ROUNDS]     a decision without clock and store                              10 seconds
replay [ROUNDS]   sluice replay, end to end                                       2 minutes
simulate [ROUNDS] sluice simulate: generate traffic, read logs, decide            1 minute, 2 GB
keyed [ROUNDS]    a whole call: without keys, on one hot key, on a million keys   4 minutes
memory [KEYS]     bytes per key, with 10 million keys                             2 minutes, 3 GB
steady [KEYS]     the slowest calls while 10 million keys are replaced            1 minute, 3 GB
waiting [ROUNDS]  an acquire that does not wait, and one that does                1 minute
protect [ROUNDS]  permits, leases and breakers, tokio's semaphore and others      1 minute
budgets [ROUNDS]  six keys under one receipt, and without one                     1 minute
flood [KEYS]      100 million new keys against a limiter for one million          9 minutes
tower [ROUNDS]    an axum router with the layer, and with tower_governor          1 minute
server ...        the server and its rivals; `server --help` lists its tables     7 minutes
store ...         our scripts and the usual ones; `store --help` lists its tables 6 minutes
all               all but the server and the store                                20 minutes

Without an argument: all but the flood, the server and the store. Memory and flood read /proc/self/status, so they need Linux.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let own = match arguments.as_slice() {
        ["server", rest @ ..] => Some(server::run(rest)),
        ["store", rest @ ..] => Some(store::run(rest)),
        _ => None,
    };
    if let Some(outcome) = own {
        return match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                eprintln!("{problem}");
                ExitCode::FAILURE
            }
        };
    }
    let (what, number) = match *arguments.as_slice() {
        [] => ("", None),
        [what] => (what, None),
        [memory::CHILD, case, keys] => {
            memory::child(case, keys);
            return ExitCode::SUCCESS;
        }
        [what, number] => match number.replace('_', "").parse::<u64>() {
            Ok(number @ 1..) => (what, Some(number)),
            _ => return refuse(number),
        },
        [_, _, more, ..] => return refuse(more),
    };
    let rounds = |usual: usize| number.map_or(usual, |number| number as usize);
    match what {
        "--help" | "-h" | "help" => print!("{HELP}"),
        "core" => core_decision::run(rounds(core_decision::ROUNDS)),
        "replay" => replay::run(rounds(replay::ROUNDS)),
        "simulate" => simulate::run(rounds(simulate::ROUNDS)),
        "keyed" => keyed::run(rounds(keyed::ROUNDS)),
        "budgets" => budgets::run(rounds(budgets::ROUNDS)),
        "tower" => tower::run(rounds(tower::ROUNDS)),
        "memory" => memory::run(number.unwrap_or(memory::KEYS)),
        "steady" => steady::run(number.unwrap_or(steady::KEYS)),
        "waiting" => waiting::run(rounds(waiting::ROUNDS)),
        "protect" => protect::run(rounds(protect::ROUNDS)),
        "flood" => flood::run(number.unwrap_or(flood::KEYS)),
        "" | "all" if number.is_none() => {
            core_decision::run(core_decision::ROUNDS);
            println!();
            replay::run(replay::ROUNDS);
            println!();
            simulate::run(simulate::ROUNDS);
            println!();
            keyed::run(keyed::ROUNDS);
            println!();
            waiting::run(waiting::ROUNDS);
            println!();
            tower::run(tower::ROUNDS);
            println!();
            budgets::run(budgets::ROUNDS);
            println!();
            protect::run(protect::ROUNDS);
            println!();
            memory::run(memory::KEYS);
            println!();
            steady::run(steady::KEYS);
            if what == "all" {
                println!();
                flood::run(flood::KEYS);
            }
        }
        _ => return refuse(what),
    }
    ExitCode::SUCCESS
}

fn refuse(argument: &str) -> ExitCode {
    eprintln!("what is \"{argument}\"?\n\n{HELP}");
    ExitCode::FAILURE
}
