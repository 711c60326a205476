//! The keys of a semaphore hold foreign or damaged data: an error says so, and the store keeps
//! working.

use super::{KEY, connect, name, semaphore};
use redis_testkit::{Options, Server};
use sluicegate::backend::{BackendError, StoreFailure};
use sluicegate::semaphore::Grant;
use sluicegate_redis::{RedisLease, RedisSemaphore};
use std::time::Duration;

/// Releases the lease before the next call.
async fn released(grant: Result<Grant<RedisLease>, StoreFailure>) -> Result<(), StoreFailure> {
    if let Some(lease) = grant?.lease() {
        assert!(lease.release().await.unwrap());
    }
    Ok(())
}

fn failure(error: BackendError) -> StoreFailure {
    match error {
        BackendError::Store(failure) => failure,
        other => panic!("{other}"),
    }
}

/// Calls every verb. Those in `noticed_by` must fail, and the others must succeed.
async fn call_all(jobs: &RedisSemaphore, noticed_by: &[&str], what: &str) {
    let id = "s1.AAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
    // The waiting call is last, because it may write.
    let outcomes = [
        ("peek", jobs.peek(KEY, 1).await.map(drop)),
        ("renew", jobs.renew(KEY, &id).await.map(drop).map_err(failure)),
        ("release", jobs.release(KEY, &id).await.map(drop).map_err(failure)),
        ("try_acquire", released(jobs.try_acquire(KEY, 2).await).await),
        ("acquire", released(jobs.acquire_within(KEY, 2, Duration::ZERO).await).await),
    ];
    for (verb, outcome) in outcomes {
        match outcome {
            Ok(()) => assert!(!noticed_by.contains(&verb), "{what}: {verb} did not fail"),
            Err(StoreFailure::Rejected(_) | StoreFailure::BadReply(_)) => {
                assert!(noticed_by.contains(&verb), "{what}: {verb} should not fail");
            }
            Err(failure) => panic!("{what}: {verb}: {failure:?}"),
        }
    }
}

const ALL: [&str; 5] = ["peek", "renew", "release", "try_acquire", "acquire"];
/// Verbs that read more than one lease.
const READ_LEASES: [&str; 4] = ["peek", "renew", "try_acquire", "acquire"];
/// Verbs that read the queue.
const READ_QUEUE: [&str; 3] = ["peek", "try_acquire", "acquire"];

#[tokio::test]
async fn foreign_data_is_an_error_and_never_stops_the_store() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 3 ttl=30s");
    let tables: [(char, &[&str]); 5] = [
        ('c', &ALL),
        // A release reads the costs only if they exist.
        ('k', &READ_LEASES),
        ('w', &READ_QUEUE),
        // The expiries and costs matter only if there is a queue.
        ('u', &[]),
        ('x', &[]),
    ];
    for (letter, noticed_by) in tables {
        for write in [&["SET", "X", "1"][..], &["RPUSH", "X", "1"]] {
            let words: Vec<String> = write.iter().map(|word| word.replace('X', &name(letter))).collect();
            server.cli(&words.iter().map(String::as_str).collect::<Vec<_>>());
            call_all(&jobs, noticed_by, &format!("{letter}: {write:?}")).await;
            server.cli(&["FLUSHALL"]);
        }
    }
    // With a queue, and all permits held.
    let ticket = "\\000".repeat(16) + "\\001\\000\\000\\000\\000\\000";
    for write in ["SET", "RPUSH"] {
        let held = jobs.try_acquire(KEY, 3).await.unwrap().lease().unwrap();
        let wrote =
            format!("redis.call('ZADD', KEYS[1], 1, '{ticket}') return redis.call('{write}', KEYS[2], '1')");
        server.cli(&["EVAL", &wrote, "2", &name('w'), &name('u')]);
        call_all(&jobs, &READ_QUEUE, &format!("u: {write}, and a line")).await;
        assert!(held.renew().await.unwrap() && held.release().await.unwrap(), "its lease is unaffected");
        server.cli(&["FLUSHALL"]);
    }
    for member in
        [["1780000000000000", "a stranger"], ["inf", "0123456789abcdef"], ["-5", "0123456789abcdef"]]
    {
        server.cli(&["ZADD", &name('c'), member[0], member[1]]);
        let said = jobs.try_acquire(KEY, 1).await.unwrap_err().to_string();
        assert!(said.contains("cannot be read"), "{said}");
        call_all(&jobs, &READ_LEASES, &format!("{member:?}")).await;
        server.cli(&["FLUSHALL"]);
    }
    server.cli(&["ZADD", &name('w'), "1", "a stranger"]);
    server.cli(&["ZADD", &name('u'), "9999999999999999", "a stranger"]);
    let peeked = jobs.peek(KEY, 1).await.unwrap_err().to_string();
    assert!(peeked.contains("cannot be read"), "{peeked}");
    server.cli(&["FLUSHALL"]);
    assert!(jobs.try_acquire(KEY, 3).await.unwrap().allowed());
}

#[tokio::test]
async fn costs_of_evicted_leases_are_removed() {
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

#[tokio::test]
async fn a_queue_of_which_the_server_evicted_a_part_starts_over() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 3 ttl=30s");
    let add = |letter: char, score: &str| {
        let entry = "redis.call('ZADD', KEYS[1], ARGV[1], ('0'):rep(16) .. '\\2\\0\\0\\0')";
        server.cli(&["EVAL", entry, "1", &name(letter), score]);
    };
    let is_there = |letter: char| server.cli(&["EXISTS", &name(letter)]).trim() == "1";
    add('w', "1");
    add('x', "1");
    assert!(is_there('w') && is_there('x'));
    assert!(jobs.peek(KEY, 3).await.unwrap().allowed(), "no entry without an expiry counts");
    assert!(!is_there('w') && !is_there('x'));
    // What is left over from a queue does not count in the next one.
    add('x', "1");
    let held = jobs.try_acquire(KEY, 3).await.unwrap().lease().unwrap();
    assert!(!jobs.acquire_within(KEY, 1, Duration::ZERO).await.unwrap().allowed());
    assert!(!is_there('x'));
    assert!(held.release().await.unwrap());
}
