//! "Three copies of our service may make 100 calls an hour to a partner, all of them together."
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use redis_testkit::{Options, Server};
use sluicegate_redis::{RedisLimiter, RedisStore};
use std::process::{Command, Stdio};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().skip(1).collect::<Vec<String>>().as_slice() {
        [] => three_processes(&Server::start(&Options::redis()).url()), // a redis-server for the occasion
        [url] => three_processes(url),                                  // or the store that is named
        [url, scope, ..] => service(url, scope),
    }
}

fn three_processes(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let (program, scope) = (std::env::current_exe()?, format!("example-{}", std::process::id()));
    let start = |_| Command::new(&program).args([url, &scope]).stdout(Stdio::piped()).spawn();
    let mut total = 0;
    for service in [1, 2, 3].map(start) {
        let admitted = String::from_utf8(service?.wait_with_output()?.stdout)?;
        println!("a service was admitted {} times of 60", admitted.trim());
        total += admitted.trim().parse::<u32>()?;
    }
    assert_eq!(total, 100, "the limit is for all of them together");
    Ok(())
}

#[tokio::main]
async fn service(url: &str, scope: &str) -> Result<(), Box<dyn std::error::Error>> {
    let store = RedisStore::builder(url).deadline(std::time::Duration::from_secs(5)).connect().await?;
    let limiter = RedisLimiter::builder("fixed-window 100/h start=first").in_store(&store, scope).build()?;
    let mut admitted = 0;
    for _ in 0..60 {
        admitted += u32::from(limiter.check("partner").await?.allowed());
    }
    println!("{admitted}");
    Ok(())
}
