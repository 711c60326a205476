//! One program limits logins in memory and in Redis: only the line that builds the limiter differs.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use redis_testkit::{Options, Server};
use sluicegate::backend::{Backend, BackendError};
use sluicegate::limit::per_minute;
use sluicegate::{Limit, Limiter};
use sluicegate_redis::{RedisLimiter, RedisStore};
use std::net::IpAddr;

async fn login(limiter: &dyn Backend, ip: IpAddr) -> Result<bool, BackendError> {
    let answer = limiter.check(&("login", ip), 1, None).await?;
    println!("{}: {}", answer.source().as_str(), answer.decision());
    Ok(answer.allowed())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start(&Options::redis()); // a redis-server, for this example
    let store = RedisStore::connect(&server.url()).await?;
    let limit = Limit::sliding_log(3, per_minute());

    let in_memory = Limiter::new(limit.clone())?;
    let in_redis = RedisLimiter::builder(limit).in_store(&store, "login").build()?;

    let ip: IpAddr = "203.0.113.9".parse()?;
    for limiter in [&in_memory as &dyn Backend, &in_redis] {
        let mut allowed = 0;
        for _ in 0..5 {
            allowed += u32::from(login(limiter, ip).await?);
        }
        assert_eq!(allowed, 3);
    }
    Ok(())
}
