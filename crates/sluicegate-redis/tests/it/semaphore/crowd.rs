//! Thousands of waiters in one process leave the store time for other calls.

use super::{WAIT_MAX, calls, connect, number, semaphore, until};
use crate::support::alone;
use redis_testkit::{Options, Server};
use sluicegate_redis::POLLS_PER_SECOND_MAX;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const WAITERS: u64 = 2_000;

fn key(waiter: u64, keys: u64) -> String {
    format!("key {}", waiter % keys)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_waiters_poll_within_the_budget_and_all_are_served() {
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let jobs = semaphore(&store, "concurrency 1 ttl=1h");
    // Each for its own key, and then as many as possible for each of a few keys.
    for keys in [WAITERS, 4] {
        server.cli(&["FLUSHALL"]);
        let mut held = Vec::new();
        for place in 0..keys {
            held.push(jobs.try_acquire(key(place, keys), 1).await.unwrap().lease().unwrap());
        }
        let mut waiters = JoinSet::new();
        for waiter in 0..WAITERS {
            let jobs = jobs.clone();
            waiters.spawn(async move {
                let grant = jobs.acquire(key(waiter, keys), 1).await.unwrap();
                assert!(grant.lease().unwrap().release().await.unwrap());
            });
        }
        // Leases, the queue, and its expiries.
        until("each key has a waiter", || number(&server, &["DBSIZE"]) == 3 * keys).await;
        // The first waiters poll too often at first, because they knew of few others.
        let all_wait_since = Instant::now();
        loop {
            let (before, began) = (calls(&server), Instant::now());
            sleep(Duration::from_secs(2)).await;
            let (asked, took) = (calls(&server) - before, began.elapsed());
            assert!(asked > 0, "they poll");
            let most = f64::from(POLLS_PER_SECOND_MAX) * took.as_secs_f64();
            if f64::from(u32::try_from(asked).unwrap()) < 1.2 * most {
                break;
            }
            assert!(all_wait_since.elapsed() < WAIT_MAX, "{keys} keys: {asked} in {took:?}");
        }
        // They poll at once when a permit is released here, and so does the next waiter.
        for lease in held {
            assert!(lease.release().await.unwrap());
        }
        timeout(WAIT_MAX, waiters.join_all()).await.expect("some are still waiting");
    }
}
