//! Two processes with different limits on one busy key, as while a change is rolled out.

use crate::support::connect;
use redis_testkit::{Options, Server};
use sluicegate_redis::RedisLimiter;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_check_fails_while_two_rates_are_in_use() {
    let server = Server::start(&Options::redis());
    let changes = [
        ["token-bucket 100/s", "token-bucket 120/s"],
        ["leaky-bucket 7/3s capacity=15", "leaky-bucket 1/7s capacity=30"],
        ["min-interval 1ms", "min-interval 3ms"],
        ["pacer 1000/s queue=5", "pacer 900/min queue=5"],
    ];
    for limits in changes {
        let mut callers = Vec::new();
        for limit in limits {
            let store = connect(&server.url()).await;
            let limiter = RedisLimiter::builder(limit).in_store(&store, limits[0]).build().unwrap();
            for _ in 0..16 {
                let limiter = limiter.clone();
                callers.push(tokio::spawn(async move {
                    let mut failures = Vec::new();
                    for _ in 0..250 {
                        failures.extend(limiter.check("user:42").await.err());
                    }
                    failures
                }));
            }
        }
        let mut failures = Vec::new();
        for caller in callers {
            failures.extend(caller.await.unwrap());
        }
        assert!(failures.is_empty(), "{limits:?}: {} of 8000, {:?}", failures.len(), failures[0]);
    }
}
