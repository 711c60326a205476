//! Connections to real servers, and their failures.

mod cluster;
mod log;
mod outage;
mod sentinel;
mod server;

use super::Link;
use crate::failure::ConnectError;
use crate::script::{Script, ScriptCall};
use crate::store::StoreSettings;
use futures_util::FutureExt as _;
use redis::Value;
use redis_testkit::Server;
use sluicegate::backend::StoreFailure;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::Instant;

/// Adds to a counter and returns it, so that a double charge shows.
static ADD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "#!lua\nlocal n = redis.call('INCRBY', KEYS[1], ARGV[1])\nredis.call('PEXPIRE', KEYS[1], 600000)\nreturn n"
            .to_owned(),
    )
});
/// Returns its argument, so that a mixed-up reply shows.
static ECHO: LazyLock<Script> = LazyLock::new(|| Script::new("#!lua\nreturn ARGV[1]".to_owned()));

/// A deadline that even a busy machine meets, and the bound on every wait.
const GENEROUS: Duration = Duration::from_secs(60);
/// A deadline that is meant to be missed. Five of them are shorter than `CONNECT_TIMEOUT`.
const SHORT: Duration = Duration::from_millis(150);

fn settings(url: &str, deadline: Duration) -> StoreSettings {
    StoreSettings { deadline, key_prefix: String::new(), ..StoreSettings::new(url) }
}

async fn link_with(url: &str, deadline: Duration) -> Link {
    let began = Instant::now();
    loop {
        match Link::connect(&settings(url, deadline)).await {
            Ok(link) => return link,
            // A busy machine can take longer than `CONNECT_WAIT`.
            Err(ConnectError::Unreachable(_)) if began.elapsed() < GENEROUS => {}
            Err(error) => panic!("{error}"),
        }
    }
}

async fn link(url: &str) -> Link {
    link_with(url, GENEROUS).await
}

async fn rejected(url: &str) -> ConnectError {
    Link::connect(&settings(url, GENEROUS)).await.err().expect("an unusable store")
}

fn add(key: &str, by: i64) -> ScriptCall {
    let mut call = ScriptCall::new(&ADD, &[key]);
    call.arg(by);
    call
}

fn echo(key: &str, what: &str) -> ScriptCall {
    let mut call = ScriptCall::new(&ECHO, &[key]);
    call.arg(what);
    call
}

#[expect(clippy::unnecessary_wraps, reason = "compared with the answer of a call")]
fn text(what: &str) -> Result<Value, StoreFailure> {
    Ok(Value::BulkString(what.as_bytes().to_vec()))
}

impl Link {
    async fn one(&self, call: &ScriptCall, until: Instant) -> Result<Value, StoreFailure> {
        self.send(std::slice::from_ref(call), until).await.remove(0)
    }

    async fn add(&self, key: &str) -> Result<Value, StoreFailure> {
        self.one(&add(key, 1), Instant::now() + GENEROUS).await
    }

    async fn add_soon(&self, key: &str) -> Result<Value, StoreFailure> {
        self.one(&add(key, 1), Instant::now() + SHORT).await
    }

    async fn each(&self, calls: &[ScriptCall]) -> Vec<Result<Value, StoreFailure>> {
        self.send(calls, Instant::now() + GENEROUS).await
    }
}

/// How many times a server has loaded a script.
fn loads(server: &Server) -> u32 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_script|load:calls="));
    calls.map_or(0, |rest| rest.split(',').next().expect("a number").parse().expect("a number"))
}

/// Waits until the condition holds, and panics with its name if that takes too long.
async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < GENEROUS, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until calls are answered again.
async fn back(link: &Link) {
    eventually("the store is back", async || link.add_soon("back").await.is_ok()).await;
}

/// Waits until calls fail at once, and returns the last failure.
async fn down(link: &Link) -> String {
    let mut last = String::new();
    eventually("the store is down", async || match link.add_soon("down").await {
        Err(StoreFailure::Unavailable(why)) => {
            last = why;
            true
        }
        _ => false,
    })
    .await;
    last
}

/// While the store is down, calls fail without waiting.
fn assert_free_of_cost(link: &Link) {
    for _ in 0..100 {
        assert!(matches!(link.add_soon("free").now_or_never(), Some(Err(StoreFailure::Unavailable(_)))));
    }
}
