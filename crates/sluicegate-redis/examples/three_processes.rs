//! Three processes share one limit: together they may make 100 calls per hour to a partner.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use redis_testkit::{Options, Server};
use sluicegate_redis::{RedisLimiter, RedisStore};
use std::process::{Command, Stdio};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().skip(1).collect::<Vec<String>>().as_slice() {
        [] => three_processes(&Server::start(&Options::redis()).url()), // starts a redis-server
        [url] => three_processes(url),                                  // uses the given store
        [url, scope, ..] => service(url, scope),
    }
}

fn three_processes(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let (program, scope) = (std::env::current_exe()?, format!("example-{}", std::process::id()));
    let start = |_| Command::new(&program).args([url, &scope]).stdout(Stdio::piped()).spawn();
    let mut total = 0;
    for service in [1, 2, 3].map(start) {
        let admitted = String::from_utf8(service?.wait_with_output()?.stdout)?;
        println!("a process was allowed {} of 60 calls", admitted.trim());
        total += admitted.trim().parse::<u32>()?;
    }
    assert_eq!(total, 100, "the processes share the limit");
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
