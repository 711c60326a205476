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

use sluicegate_redis::{RedisSemaphore, RedisStore};
use sluicegate_servers::Server;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const KEY: &str = "Harry";
const PATIENCE: Duration = Duration::from_secs(20);

/// A store that may be slow, as others run tests too.
async fn connect(url: &str) -> RedisStore {
    RedisStore::builder(url).deadline(Duration::from_secs(10)).connect().await.unwrap()
}

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

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}
