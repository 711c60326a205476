//! A scope's limit changes while leases are held and waited for, as when a service reloads its
//! configuration.

use super::{KEY, WAIT_MAX, calls, connect, leases, number, queued, semaphore, until};
use redis_testkit::{Options, Server};
use sluicegate::semaphore::Grant;
use sluicegate::wait::Denial;
use sluicegate_redis::{RedisLease, RedisSemaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

fn wait(jobs: &RedisSemaphore, key: &str, cost: u64) -> JoinHandle<Grant<RedisLease>> {
    let (jobs, key) = (jobs.clone(), key.to_owned());
    tokio::spawn(async move { jobs.acquire(key, cost).await.unwrap() })
}

async fn ended(waiting: JoinHandle<Grant<RedisLease>>) -> Grant<RedisLease> {
    timeout(WAIT_MAX, waiting).await.expect("still waiting").unwrap()
}

async fn take(jobs: &RedisSemaphore, times: u64) -> Vec<RedisLease> {
    let mut leases = Vec::new();
    for _ in 0..times {
        leases.push(jobs.try_acquire(KEY, 1).await.unwrap().lease().unwrap());
    }
    leases
}

/// Waits until the head of the queue has polled many times.
async fn a_while(server: &Server) {
    let before = calls(server);
    until("it polls repeatedly", || calls(server) >= before + 10).await;
}

#[tokio::test]
async fn waiters_follow_a_higher_limit_at_once() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let old = semaphore(&store, "concurrency 1 ttl=1h");
    let held = take(&old, 1).await;
    let waiting = [wait(&old, KEY, 1), wait(&old, KEY, 1)];
    until("both are queued", || queued(&server) == 2).await;
    // A semaphore that is dropped again, because the configuration was rejected, changes nothing.
    drop(semaphore(&store, "concurrency 3 ttl=1h"));
    a_while(&server).await;
    assert_eq!((leases(&server), queued(&server)), (1, 2));
    let _new = semaphore(&store, "concurrency 3 ttl=10s");
    let mut grants = Vec::new();
    for waiting in waiting {
        grants.push(ended(waiting).await);
    }
    assert!(grants.iter().all(Grant::allowed));
    assert_eq!(grants.iter().map(|grant| grant.decision().limit()).collect::<Vec<_>>(), [3, 3]);
    // Their leases have the new ttl, and so do renewed ones. (A busy machine may take a minute for
    // this.)
    let seconds: u64 = server.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    let expires_within =
        |lease: &RedisLease, most: u64| lease.until().as_micros() <= (seconds + most) * 1_000_000;
    assert!(!expires_within(&held[0], 3_000) && held[0].renew().await.unwrap());
    assert!(expires_within(&held[0], 70));
    assert!(grants.into_iter().all(|grant| expires_within(&grant.lease().unwrap(), 70)));
}

#[tokio::test]
async fn waiters_follow_a_lower_limit_at_once() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let old = semaphore(&store, "concurrency 3 ttl=1h");
    let mut held = take(&old, 3).await;
    let (small, large) = (wait(&old, KEY, 1), wait(&old, KEY, 2));
    until("both are queued", || queued(&server) == 2).await;
    let _new = semaphore(&store, "concurrency 1 ttl=1h");
    // A cost that can never be granted is denied at once, and leaves the queue.
    let refused = ended(large).await;
    assert_eq!((refused.denial(), refused.decision().limit()), (Some(Denial::Never), 1));
    until("it has left the queue", || queued(&server) == 1).await;
    while let Some(lease) = held.pop() {
        assert!(lease.release().await.unwrap());
        if !held.is_empty() {
            a_while(&server).await;
            assert!(!small.is_finished(), "under the old limit a permit would be free");
        }
    }
    assert!(ended(small).await.allowed());
}

#[tokio::test]
async fn an_exception_applies_to_its_key_alone() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let of_sally = |limit: &str| {
        RedisSemaphore::builder(limit).in_store(&store, "jobs").only_for("user:43").build().unwrap()
    };
    let (exception, rule) = (of_sally("concurrency 2 ttl=1h"), semaphore(&store, "concurrency 1 ttl=1h"));
    let _held = [rule.try_acquire(KEY, 1).await.unwrap(), exception.try_acquire("user:43", 2).await.unwrap()];
    let (harry, sally) = (wait(&rule, KEY, 1), wait(&exception, "user:43", 2));
    let in_line = |key: &str| number(&server, &["ZCARD", &format!("sluice:1/jobs:0w|{{{key}}}")]);
    until("both are queued", || in_line("user:42") == 1 && in_line("user:43") == 1).await;
    // Built again in the same order, with more for user:43.
    let _new = (of_sally("concurrency 4 ttl=1h"), semaphore(&store, "concurrency 1 ttl=1h"));
    assert_eq!(ended(sally).await.decision().limit(), 4);
    a_while(&server).await;
    assert!(!harry.is_finished());
    harry.abort();
}
