//! Semaphores on a shared store: the core's decisions, with processes that die, freeze and wait,
//! and under faults.

mod changes;
mod crowd;
mod faults;
mod foreign;
mod leases;
mod local;
mod parity;
mod processes;
mod waiting;

use crate::support::{WAIT_MAX, connect, until};
use redis_testkit::Server;
use sluicegate_redis::{RedisSemaphore, RedisStore};
use std::time::Duration;

const KEY: &str = "user:42";

fn semaphore(store: &RedisStore, limit: &str) -> RedisSemaphore {
    RedisSemaphore::builder(limit).in_store(store, "jobs").build().unwrap()
}

/// The names of the store's keys.
fn name(letter: char) -> String {
    format!("sluice:1/jobs:0{letter}|{{{KEY}}}")
}

fn number(server: &Server, words: &[&str]) -> u64 {
    let said = server.cli(words);
    said.trim().parse().unwrap_or_else(|_| panic!("{words:?}: {said}"))
}

/// The number of stored leases.
fn leases(server: &Server) -> u64 {
    number(server, &["ZCARD", &name('c')])
}

/// The number of entries in the queue.
fn queued(server: &Server) -> u64 {
    number(server, &["ZCARD", &name('w')])
}

/// The time until the last lease (`c`) or queue entry (`u`) of the key expires, by the store's
/// clock.
fn lasts(server: &Server, letter: char) -> Duration {
    let last = server.cli(&["ZRANGE", &name(letter), "-1", "-1", "WITHSCORES"]);
    let micros = |text: &str| text.trim().parse::<u64>().unwrap();
    let now: Vec<u64> = server.cli(&["TIME"]).lines().map(micros).collect();
    let until = last.lines().last().map_or(0, micros);
    Duration::from_micros(until.saturating_sub(now[0] * 1_000_000 + now[1]))
}

/// The number of script calls.
pub(crate) fn calls(server: &Server) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let of_scripts =
        stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap_or("0,");
    of_scripts.split(',').next().unwrap().parse().unwrap()
}
