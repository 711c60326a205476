//! Semaphores over a shared store: the same answers as the core's, over processes that die, stop and wait, and while the store fails.

mod changes;
mod crowd;
mod faults;
mod foreign;
mod leases;
mod local;
mod parity;
mod processes;
mod waiting;

use crate::support::{PATIENCE, connect, until};
use redis_testkit::Server;
use sluicegate_redis::{RedisSemaphore, RedisStore};
use std::time::Duration;

const KEY: &str = "Harry";

fn semaphore(store: &RedisStore, limit: &str) -> RedisSemaphore {
    RedisSemaphore::builder(limit).in_store(store, "jobs").build().unwrap()
}

/// What the store's keys are called.
fn name(letter: char) -> String {
    format!("sluice:1/jobs:0{letter}|{{{KEY}}}")
}

fn number(server: &Server, words: &[&str]) -> u64 {
    let said = server.cli(words);
    said.trim().parse().unwrap_or_else(|_| panic!("{words:?}: {said}"))
}

/// How many leases are written.
fn leases(server: &Server) -> u64 {
    number(server, &["ZCARD", &name('c')])
}

/// How many stand in line.
fn line(server: &Server) -> u64 {
    number(server, &["ZCARD", &name('w')])
}

/// By the store's own clock, how long it is until the last of a key's leases (`c`) or tickets (`u`) is good no more.
fn lasts(server: &Server, letter: char) -> Duration {
    let last = server.cli(&["ZRANGE", &name(letter), "-1", "-1", "WITHSCORES"]);
    let micros = |text: &str| text.trim().parse::<u64>().unwrap();
    let now: Vec<u64> = server.cli(&["TIME"]).lines().map(micros).collect();
    let until = last.lines().last().map_or(0, micros);
    Duration::from_micros(until.saturating_sub(now[0] * 1_000_000 + now[1]))
}

/// How often scripts were called.
pub(crate) fn calls(server: &Server) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let of_scripts =
        stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap_or("0,");
    of_scripts.split(',').next().unwrap().parse().unwrap()
}
