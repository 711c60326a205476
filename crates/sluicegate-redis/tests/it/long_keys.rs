//! Keys of any length take a bounded amount of the store's memory, and every verb works on them.

use crate::support::{LONG, connect, every_key_expires, limiter};
use redis_testkit::{Cluster, Options, Server};
use sluicegate_redis::{RedisSemaphore, check_all};
use std::time::Duration;

/// The longest key that the server accepts.
const LEN: usize = 65_536;

fn long_key(number: usize) -> String {
    format!("{number}{}", "x".repeat(LEN - number.to_string().len()))
}

#[tokio::test]
async fn a_long_key_takes_no_more_memory_than_a_short_one() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limiter = limiter(&store, &format!("token-bucket 5/{LONG}"));
    for number in 0..1_000 {
        assert!(limiter.check(long_key(number)).await.unwrap().allowed());
    }
    assert_eq!(server.cli(&["DBSIZE"]), "1000", "no two keys collide");
    for name in server.cli(&["KEYS", "*"]).lines() {
        let bytes: usize = server.cli(&["MEMORY", "USAGE", name]).trim().parse().unwrap();
        assert!(bytes < 400, "{bytes} bytes: {name}");
    }
}

#[tokio::test]
async fn every_verb_works_on_a_long_key() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let window = limiter(&store, &format!("fixed-window 10/{LONG} start=first"));
    let (key, other) = (long_key(1), long_key(2));
    let kept = window.reserve(&*key, 4, Duration::ZERO).await.unwrap().keep().unwrap();
    let receipt = kept.to_string().parse().unwrap();
    assert_eq!(window.peek(&*key, 1).await.unwrap().remaining(), 6);
    assert!(window.settle(&receipt, 3).await.unwrap());
    assert_eq!(window.peek(&*key, 1).await.unwrap().remaining(), 7);
    let reserved = window.reserve(&*key, 4, Duration::ZERO).await.unwrap();
    assert!(reserved.cancel().await.unwrap());
    assert_eq!(window.take(&*key, 5).await.unwrap().1, 5);
    assert_eq!(window.refund(&*key, 1).await.unwrap().remaining(), 3);
    assert_eq!(window.peek(&*other, 1).await.unwrap().remaining(), 10, "another key");
    every_key_expires(&server);
    window.reset(&*key).await.unwrap();
    assert_eq!(server.cli(&["DBSIZE"]), "0");

    let semaphore = RedisSemaphore::builder("concurrency 1 ttl=1h").in_store(&store, "leases");
    let semaphore = semaphore.build().unwrap();
    let lease = semaphore.try_acquire(&*key, 1).await.unwrap().lease().unwrap().keep();
    assert!(semaphore.try_acquire(&*key, 1).await.unwrap().lease().is_none());
    assert!(semaphore.try_acquire(&*other, 1).await.unwrap().lease().is_some(), "another key");
    assert!(semaphore.renew(&*key, &lease).await.unwrap());
    assert!(semaphore.release(&*key, &lease).await.unwrap());
    assert!(semaphore.try_acquire(&*key, 1).await.unwrap().lease().is_some());
}

#[tokio::test]
async fn long_keys_with_one_hash_tag_share_a_slot() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let store = connect(&cluster.url()).await;
    let window = limiter(&store, &format!("fixed-window 10/{LONG}"));
    let long = long_key(1);
    let tags = ["acme", &long];
    for tag in tags {
        let keys =
            [tag.to_owned(), format!("{{{tag}}}:ip"), format!("{{{tag}}}:{long}"), format!("{{{tag}}}")];
        let calls = keys.each_ref().map(|key| window.call(key.as_bytes(), 1));
        let (answer, each) = check_all(&calls).await.unwrap();
        assert!(
            answer.allowed() && each.iter().all(|decision| decision.remaining() == 9),
            "no key is shared"
        );
    }
    // The state of a key and its receipts are in one slot.
    assert!(window.reserve(&*long, 1, Duration::ZERO).await.unwrap().cancel().await.unwrap());
}
