//! Several calls over the hash slots of a cluster.

use crate::support::{WAIT_MAX, connect, connect_with};
use redis_testkit::{Cluster, Options};
use sluicegate::backend::{BackendError, Source, StoreFailure};
use sluicegate::{Decision, ReserveOptions, Ttl, VerbError};
use sluicegate_redis::{RedisLimiter, RedisStore, check_all, reserve_all, settle_all};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

fn limiter(store: &RedisStore, limit: &str, scope: &str) -> RedisLimiter {
    RedisLimiter::builder(limit).in_store(store, scope).build().unwrap()
}

async fn used(limiter: &RedisLimiter, key: &str) -> u64 {
    limiter.usage(key).await.unwrap()[0].1.used
}

/// Keys of three masters, one of each.
fn one_key_of_each(cluster: &Cluster) -> Vec<String> {
    let owner = |key: &String| cluster.owner_of(cluster.slot_of(key));
    let keys =
        (0..3).map(|master| (0..1_000).map(|i| format!("key{i}")).find(|key| owner(key) == master).unwrap());
    keys.collect()
}

async fn until_used(limiter: &RedisLimiter, key: &str, expected: u64) {
    let began = Instant::now();
    while limiter.usage(key).await.map_or(u64::MAX, |usage| usage[0].1.used) != expected {
        let used = limiter.usage(key).await;
        assert!(began.elapsed() < WAIT_MAX, "{key} is not at {expected}, but {used:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_over_several_slots_are_all_or_nothing() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let store = connect(&cluster.url()).await;
    let user = limiter(&store, "fixed-window 2/1000h", "user");
    let site = limiter(&store, "token-bucket 100/1000h", "site");
    let keys = one_key_of_each(&cluster);
    let calls =
        [user.call(&*keys[0], 1), site.call(&*keys[1], 5), site.call(&*keys[2], 1), site.call(&*keys[1], 2)];
    for remaining in [1, 0] {
        let (answer, each) = check_all(&calls).await.unwrap();
        assert_eq!((answer.allowed(), answer.remaining(), each.len()), (true, remaining, 4));
        assert_eq!(each[1], each[3], "one key");
    }
    let (answer, each) = check_all(&calls).await.unwrap();
    let decision = answer.decision();
    assert_eq!((decision.allowed(), decision.denied_call(), decision.denied_by()), (false, Some(0), Some(0)));
    let alone: Vec<bool> = each.iter().map(Decision::allowed).collect();
    assert_eq!(alone, [false, true, true, true]);
    assert_eq!(
        (used(&user, &keys[0]).await, used(&site, &keys[1]).await, used(&site, &keys[2]).await),
        (2, 14, 2)
    );
    for node in cluster.masters() {
        assert_eq!(node.cli(&["KEYS", "sluice:1/*:[rd]|*"]), "", "no receipt is left that returns itself");
    }
    let paced = limiter(&store, "pacer 100/s", "paced");
    let rejected = check_all(&[paced.call(&*keys[0], 1), site.call(&*keys[1], 1)]).await.unwrap_err();
    assert!(matches!(rejected, BackendError::Verb(VerbError::SlotsDiffer(..))), "{rejected}");
    assert!(check_all(&[paced.call("{a}1", 1), site.call("{a}2", 1)]).await.unwrap().0.allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_over_several_slots_is_used_as_a_whole() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let store = connect(&cluster.url()).await;
    let site = limiter(&store, "token-bucket 100/1000h", "site");
    let keys = one_key_of_each(&cluster);
    let calls = [site.call(&*keys[0], 5), site.call(&*keys[1], 6), site.call(&*keys[2], 7)];
    let usage =
        async || [used(&site, &keys[0]).await, used(&site, &keys[1]).await, used(&site, &keys[2]).await];
    let reserved = reserve_all(&calls, ReserveOptions::default()).await.unwrap();
    assert_eq!((reserved.granted(), usage().await), (18, [5, 6, 7]));
    for node in cluster.masters() {
        assert_eq!(node.cli(&["KEYS", "sluice:1/*:d|*"]), "", "none ends by itself");
    }
    let receipt = reserved.keep().unwrap();
    let of_calls = [site.call(&*keys[0], 1), site.call(&*keys[1], 2), site.call(&*keys[2], 10)];
    assert!(settle_all(&receipt, &of_calls).await.unwrap());
    assert_eq!(usage().await, [1, 2, 10]);
    assert!(!settle_all(&receipt, &of_calls).await.unwrap(), "it is used");
    for (ttl, after) in
        [(Ttl::cancel(Duration::from_secs(2)), 10), (Ttl::keep(Duration::from_millis(500)), 17)]
    {
        let receipt = reserve_all(&calls, ReserveOptions::default().ttl(ttl)).await.unwrap().keep().unwrap();
        assert_eq!(usage().await, [6, 8, 17]);
        sleep(Duration::from(ttl.length) + Duration::from_millis(50)).await;
        assert!(!settle_all(&receipt, &of_calls).await.unwrap(), "{ttl:?}: it has expired");
        until_used(&site, &keys[2], after).await;
    }
    let cancelled = reserve_all(&calls, ReserveOptions::default()).await.unwrap();
    assert_eq!(usage().await, [11, 14, 24]);
    assert!(cancelled.cancel().await.unwrap());
    assert_eq!(usage().await, [6, 8, 17]);
}

/// One node does not answer until a key of another was reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_confirmed_is_returned() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let store = connect(&cluster.url()).await;
    let site = limiter(&store, "token-bucket 100/1000h", "site");
    let keys = one_key_of_each(&cluster);
    let calls: Vec<_> = keys.iter().map(|key| site.call(key.as_str(), 10)).collect();
    cluster.masters()[2].stop();
    let reset = async {
        until_used(&site, &keys[0], 10).await;
        until_used(&site, &keys[1], 10).await;
        site.reset(&*keys[0]).await.unwrap();
        cluster.masters()[2].cont();
    };
    let (reserved, ()) = tokio::join!(reserve_all(&calls, ReserveOptions::default()), reset);
    assert!(matches!(reserved, Err(BackendError::Store(StoreFailure::BadReply(_)))), "{reserved:?}");
    for key in &keys {
        assert_eq!(used(&site, key).await, 0, "{key}");
    }
}

/// A key is denied by a charge that is returned once another node has answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cancelled_is_no_longer_denied_from_memory() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let builder = RedisStore::builder(&cluster.url()).deadline(WAIT_MAX).remember_denials(true);
    let site = limiter(&connect_with(builder).await, "token-bucket 10/1000h", "site");
    let keys = one_key_of_each(&cluster);
    assert!(site.check_cost(&*keys[2], 10).await.unwrap().allowed());
    cluster.masters()[2].stop();
    let denied = async {
        until_used(&site, &keys[0], 10).await;
        assert!(!site.check(&*keys[0]).await.unwrap().allowed());
        assert_eq!(site.check(&*keys[0]).await.unwrap().source(), Source::Remembered);
        cluster.masters()[2].cont();
    };
    let calls = [site.call(&*keys[0], 10), site.call(&*keys[2], 10)];
    let (checked, ()) = tokio::join!(check_all(&calls), denied);
    assert!(!checked.unwrap().0.allowed());
    assert!(site.check(&*keys[0]).await.unwrap().allowed(), "its charge was returned");
}

/// One node does not answer, so the client has reserved some slots and waits when it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_client_reserved_returns_itself() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let observer = connect(&cluster.url()).await;
    let site = limiter(&observer, "token-bucket 100/1000h", "site");
    let keys = one_key_of_each(&cluster);
    let deadline = Duration::from_secs(2);
    let client = connect_with(RedisStore::builder(&cluster.url()).deadline(deadline)).await;
    let of_client = limiter(&client, "token-bucket 100/1000h", "site");
    for key in &keys {
        assert!(of_client.check(key.as_str()).await.unwrap().allowed());
    }
    let calls: Vec<_> = keys.iter().map(|key| of_client.call(key.as_str(), 10)).collect();
    for reserves in [false, true] {
        cluster.masters()[2].stop();
        let killed = if reserves {
            timeout(Duration::from_millis(500), reserve_all(&calls, ReserveOptions::default())).await.is_err()
        } else {
            timeout(Duration::from_millis(500), check_all(&calls)).await.is_err()
        };
        assert!(killed, "it waits for the third node");
        assert_eq!((used(&site, &keys[0]).await, used(&site, &keys[1]).await), (11, 11), "they are reserved");
        cluster.masters()[2].cont();
        for key in &keys {
            until_used(&site, key, 1).await;
        }
    }
}
