//! What the server has to hold: many connections, a flood of new keys, and hostile clients.
//!
//! redis-server stands beside ours where that says something; its limits are its defaults.

mod connections;
mod flood;
mod hostile;

use super::Outcome;
use super::options::Options;
use super::ours::{self, Ours};
use super::process::{Process, run_anywhere};
use super::redis::{self, RedisCell};

type Trial = fn(&Options) -> Outcome<()>;

/// A server under trial.
enum Tried {
    Ours(Ours),
    Redis(Process),
}

impl Tried {
    fn name(&self) -> &'static str {
        match self {
            Tried::Ours(_) => "ours",
            Tried::Redis(_) => "redis-cell",
        }
    }

    fn process(&mut self) -> &mut Process {
        match self {
            Tried::Ours(ours) => &mut ours.process,
            Tried::Redis(process) => process,
        }
    }
}

pub fn run(options: &Options, which: Option<&str>) -> Outcome<()> {
    run_anywhere()?;
    let trials: [(&str, Trial); 3] =
        [("connections", connections::run), ("flood", flood::run), ("hostile", hostile::run)];
    for (name, trial) in trials {
        if which.is_none_or(|which| which == name) {
            trial(options)?;
            println!();
        }
    }
    Ok(())
}

/// Ours, unless only the rivals are wanted, and redis-server with redis-cell.
fn all(options: &Options) -> Outcome<Vec<Tried>> {
    let mut all = Vec::from_iter(ours(options)?.map(Tried::Ours));
    all.push(Tried::Redis(redis::start("redis-cell", Some(&RedisCell::find()?), None)?));
    Ok(all)
}

/// Ours with default settings, two threads, and at most as many keys as the options say.
fn ours(options: &Options) -> Outcome<Option<Ours>> {
    options.sluice.as_deref().map(|program| ours::start(options, program, 2, options.keys, None)).transpose()
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}
