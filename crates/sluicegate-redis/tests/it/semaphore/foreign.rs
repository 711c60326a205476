//! What is there under the names of a semaphore's keys is not ours, or is damaged: an error that says so, and the store goes on.

use super::{KEY, connect, name, semaphore};
use sluicegate_redis::{RedisSemaphore, StoreFailure};
use sluicegate_servers::{Options, Server};

/// Asks in every way, and is an error in at least one.
async fn ask_all(jobs: &RedisSemaphore, what: &str) {
    let id = "AAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
    let outcomes = [
        jobs.try_acquire(KEY, 2).await.map(drop),
        jobs.peek(KEY, 1, None).await.map(drop),
        jobs.renew(KEY, &id, None).await.map(drop),
        jobs.release(KEY, &id, None).await.map(drop),
    ];
    let failures: Vec<StoreFailure> = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(!failures.is_empty(), "{what}: nobody noticed");
    for failure in failures {
        assert!(
            matches!(failure, StoreFailure::Refused(_) | StoreFailure::Garbled(_)),
            "{what}: {failure:?}"
        );
    }
}

#[tokio::test]
async fn values_of_others_are_an_error_and_never_stop_the_store() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 3 ttl=30s");
    for letter in ['c', 'k', 'w'] {
        for write in [&["SET", "X", "1"][..], &["RPUSH", "X", "1"]] {
            let words: Vec<String> = write.iter().map(|word| word.replace('X', &name(letter))).collect();
            server.cli(&words.iter().map(String::as_str).collect::<Vec<_>>());
            ask_all(&jobs, &format!("{letter}: {write:?}")).await;
            server.cli(&["FLUSHALL"]);
        }
    }
    for member in
        [["1780000000000000", "somebody's"], ["inf", "0123456789abcdef"], ["-5", "0123456789abcdef"]]
    {
        server.cli(&["ZADD", &name('c'), member[0], member[1]]);
        let said = jobs.try_acquire(KEY, 1).await.unwrap_err().to_string();
        assert!(said.contains("cannot be read"), "{said}");
        ask_all(&jobs, &format!("{member:?}")).await;
        server.cli(&["FLUSHALL"]);
    }
    server.cli(&["ZADD", &name('w'), "1", "somebody's"]);
    server.cli(&["ZADD", &name('u'), "9999999999999999", "somebody's"]);
    let peeked = jobs.peek(KEY, 1, None).await.unwrap_err().to_string();
    assert!(peeked.contains("cannot be read"), "{peeked}");
    server.cli(&["FLUSHALL"]);
    assert!(jobs.try_acquire(KEY, 3).await.unwrap().allowed());
}

#[tokio::test]
async fn costs_whose_leases_were_thrown_out_are_forgotten() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 3 ttl=30s");
    let lost = jobs.try_acquire(KEY, 3).await.unwrap().lease().unwrap();
    server.cli(&["DEL", &name('c')]);
    assert!(!lost.renew().await.unwrap());
    let next = jobs.try_acquire(KEY, 3).await.unwrap();
    assert_eq!(next.decision().remaining(), 0);
    assert!(next.lease().unwrap().release().await.unwrap());
    assert!(!lost.release().await.unwrap());
    assert_eq!(server.cli(&["DBSIZE"]).trim(), "0");
}
