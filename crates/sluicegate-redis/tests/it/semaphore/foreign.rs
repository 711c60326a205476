//! What is there under the names of a semaphore's keys is not ours, or is damaged: an error that says so, and the store goes on.

use super::{KEY, connect, name, semaphore};
use redis_testkit::{Options, Server};
use sluicegate::backend::{BackendError, StoreFailure};
use sluicegate::semaphore::Grant;
use sluicegate_redis::{RedisLease, RedisSemaphore};
use std::time::Duration;

/// Returns what was given, before anybody else asks.
async fn given_back(grant: Result<Grant<RedisLease>, StoreFailure>) -> Result<(), StoreFailure> {
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

/// Asks in every way. Each verb that is named must notice, and the others must go on.
async fn ask_all(jobs: &RedisSemaphore, noticed_by: &[&str], what: &str) {
    let id = "s1.AAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
    // Who waits is asked last, as it may write.
    let outcomes = [
        ("peek", jobs.peek(KEY, 1).await.map(drop)),
        ("renew", jobs.renew(KEY, &id).await.map(drop).map_err(failure)),
        ("release", jobs.release(KEY, &id).await.map(drop).map_err(failure)),
        ("try_acquire", given_back(jobs.try_acquire(KEY, 2).await).await),
        ("acquire", given_back(jobs.acquire_within(KEY, 2, Duration::ZERO).await).await),
    ];
    for (verb, outcome) in outcomes {
        match outcome {
            Ok(()) => assert!(!noticed_by.contains(&verb), "{what}: {verb} did not notice"),
            Err(StoreFailure::Rejected(_) | StoreFailure::BadReply(_)) => {
                assert!(noticed_by.contains(&verb), "{what}: {verb} need not have noticed");
            }
            Err(failure) => panic!("{what}: {verb}: {failure:?}"),
        }
    }
}

const ALL: [&str; 5] = ["peek", "renew", "release", "try_acquire", "acquire"];
/// Those that look at the leases, and not only for one.
const LOOK: [&str; 4] = ["peek", "renew", "try_acquire", "acquire"];
/// Those that look at the line.
const IN_LINE: [&str; 3] = ["peek", "try_acquire", "acquire"];

#[tokio::test]
async fn values_of_others_are_an_error_and_never_stop_the_store() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 3 ttl=30s");
    let tables: [(char, &[&str]); 4] = [
        ('c', &ALL),
        // What leases cost matters to one who returns a lease only if that is there.
        ('k', &LOOK),
        ('w', &IN_LINE),
        // Until when tickets are good matters only where there is a line.
        ('u', &[]),
    ];
    for (letter, noticed_by) in tables {
        for write in [&["SET", "X", "1"][..], &["RPUSH", "X", "1"]] {
            let words: Vec<String> = write.iter().map(|word| word.replace('X', &name(letter))).collect();
            server.cli(&words.iter().map(String::as_str).collect::<Vec<_>>());
            ask_all(&jobs, noticed_by, &format!("{letter}: {write:?}")).await;
            server.cli(&["FLUSHALL"]);
        }
    }
    // With a line before them, and all places taken.
    let ticket = "\\000".repeat(16) + "\\001\\000\\000\\000";
    for write in ["SET", "RPUSH"] {
        let held = jobs.try_acquire(KEY, 3).await.unwrap().lease().unwrap();
        let wrote =
            format!("redis.call('ZADD', KEYS[1], 1, '{ticket}') return redis.call('{write}', KEYS[2], '1')");
        server.cli(&["EVAL", &wrote, "2", &name('w'), &name('u')]);
        ask_all(&jobs, &IN_LINE, &format!("u: {write}, and a line")).await;
        assert!(held.renew().await.unwrap() && held.release().await.unwrap(), "its place is its own");
        server.cli(&["FLUSHALL"]);
    }
    for member in
        [["1780000000000000", "somebody's"], ["inf", "0123456789abcdef"], ["-5", "0123456789abcdef"]]
    {
        server.cli(&["ZADD", &name('c'), member[0], member[1]]);
        let said = jobs.try_acquire(KEY, 1).await.unwrap_err().to_string();
        assert!(said.contains("cannot be read"), "{said}");
        ask_all(&jobs, &LOOK, &format!("{member:?}")).await;
        server.cli(&["FLUSHALL"]);
    }
    server.cli(&["ZADD", &name('w'), "1", "somebody's"]);
    server.cli(&["ZADD", &name('u'), "9999999999999999", "somebody's"]);
    let peeked = jobs.peek(KEY, 1).await.unwrap_err().to_string();
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
