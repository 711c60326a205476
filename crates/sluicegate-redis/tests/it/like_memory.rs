//! A limiter in the store takes the same arguments as one in memory, and the store counts its
//! answers.

use crate::support::until;
use redis_testkit::{Options, Server};
use sluicegate::Key;
use sluicegate::backend::Source;
use sluicegate_redis::{Failures, RedisLimiter, RedisStore, RedisStoreBuilder, check_each};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

fn store_of(server: &Server) -> RedisStoreBuilder {
    RedisStore::builder(&server.url()).deadline(Duration::from_secs(10))
}

async fn is_new(limiter: &RedisLimiter, key: impl Key) -> bool {
    limiter.check(key).await.unwrap().allowed()
}

#[tokio::test]
async fn keys_of_every_type_are_distinct() {
    let server = Server::start(&Options::redis());
    let store = store_of(&server).connect().await.unwrap();
    let limiter = RedisLimiter::builder("fixed-window 1/1000h").in_store(&store, "api").build().unwrap();
    assert!(is_new(&limiter, "7").await && !is_new(&limiter, String::from("7")).await);
    assert!(!is_new(&limiter, b"7").await, "text equals its bytes");
    assert!(is_new(&limiter, 7_u8).await && !is_new(&limiter, 7_i64).await);
    assert!(is_new(&limiter, ("7", 7)).await && is_new(&limiter, (7, "7")).await);
    assert!(is_new(&limiter, Ipv4Addr::LOCALHOST).await && is_new(&limiter, "127.0.0.1").await);
    assert!(is_new(&limiter, ()).await && is_new(&limiter, "").await);
    assert!(is_new(&limiter, "~n7;").await, "text is not mistaken for a number");
}

#[tokio::test]
async fn answers_and_round_trips_are_counted() {
    let server = Server::start(&Options::redis());
    let answered = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&answered);
    let store = store_of(&server).remember_denials(true);
    let store = store.on_round_trip(move |calls, _| {
        counter.fetch_add(calls, Relaxed);
    });
    let store = store.connect().await.unwrap();
    assert!(store.is_up() && store.is_partly_up());
    let limiter = RedisLimiter::builder("fixed-window 2/1000h").in_store(&store, "api").build().unwrap();
    let calls: Vec<_> = (0..3).map(|_| limiter.call("user:42", 1)).collect();
    assert_eq!(
        check_each(&calls).await.into_iter().filter(|answer| answer.as_ref().unwrap().allowed()).count(),
        2
    );
    assert_eq!(limiter.check("user:42").await.unwrap().source(), Source::Remembered);
    limiter.reset("user:42").await.unwrap();
    let stats = store.stats();
    assert_eq!((stats.answers_by(Source::Store), stats.answers_by(Source::Remembered)), (4, 1));
    assert_eq!((stats.failures, answered.load(Relaxed)), (Failures::default(), 4));
}

/// More receipts than a key may have.
#[tokio::test]
async fn a_dropped_reservation_keeps_its_charge_but_no_receipt() {
    let server = Server::start(&Options::redis());
    let store = store_of(&server).connect().await.unwrap();
    let limiter = RedisLimiter::builder("fixed-window 20000/1000h").in_store(&store, "api").build().unwrap();
    for _ in 0..16_500 {
        assert!(limiter.reserve("user:42", 1, Duration::ZERO).await.unwrap().allowed());
    }
    until("receipts are deleted", || server.cli(&["HLEN", "sluice:1/api:r|{user:42}"]).trim() == "0").await;
    assert_eq!(limiter.peek("user:42", 0).await.unwrap().remaining(), 3_500);
}
