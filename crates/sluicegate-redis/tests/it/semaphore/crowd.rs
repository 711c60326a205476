//! Very many wait in one process, and the store has time for others.

use super::{PATIENCE, calls, connect, number, semaphore, until};
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
async fn thousands_who_wait_ask_no_more_often_than_they_may_and_all_come_to_their_turn() {
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let jobs = semaphore(&store, "concurrency 1 ttl=1h");
    // Each under a key of its own, and then as many as there can be under each of a few.
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
        // Leases, a line, and until when its tickets are good.
        until("somebody waits under each key", || number(&server, &["DBSIZE"]) == 3 * keys).await;
        // Those who came first ask too often at first, as they knew of few others.
        let all_wait_since = Instant::now();
        loop {
            let (before, began) = (calls(&server), Instant::now());
            sleep(Duration::from_secs(2)).await;
            let (asked, took) = (calls(&server) - before, began.elapsed());
            assert!(asked > 0, "they ask");
            let most = f64::from(POLLS_PER_SECOND_MAX) * took.as_secs_f64();
            if f64::from(u32::try_from(asked).unwrap()) < 1.2 * most {
                break;
            }
            assert!(all_wait_since.elapsed() < PATIENCE, "{keys} keys: {asked} in {took:?}");
        }
        // They ask at once when a place is returned here, and so does whoever moves up.
        for lease in held {
            assert!(lease.release().await.unwrap());
        }
        timeout(PATIENCE, waiters.join_all()).await.expect("some still wait");
    }
}
