//! Leases in this process's memory, while the store is unavailable.

use super::KEY;
use redis_testkit::{Options, Server};
use sluicegate::BuildError;
use sluicegate::backend::Source;
use sluicegate_redis::{OnStoreFailure, RedisSemaphore, RedisStore};

async fn unavailable_store(leases: usize) -> (RedisStore, Server) {
    let server = Server::start(&Options::redis());
    let store = RedisStore::builder(&server.url()).local_leases(leases).connect().await.unwrap();
    server.kill();
    (store, server)
}

fn local(store: &RedisStore, limit: &str, scope: &str) -> RedisSemaphore {
    let builder = RedisSemaphore::builder(limit).in_store(store, scope);
    builder.on_store_failure(OnStoreFailure::Local).build().unwrap()
}

#[tokio::test]
async fn local_leases_outlast_their_semaphore() {
    let (store, _server) = unavailable_store(100).await;
    let old = local(&store, "concurrency 2 ttl=1h", "jobs");
    let held = [old.try_acquire(KEY, 1).await.unwrap(), old.try_acquire(KEY, 1).await.unwrap()];
    assert!(held.iter().all(|grant| grant.allowed() && grant.source() == Source::Local));
    let [kept, dropped] = held.map(|grant| grant.lease().unwrap());
    let kept = kept.keep();
    let new = local(&store, "concurrency 3 ttl=1h", "jobs");
    drop(old);
    assert_eq!(new.peek(KEY, 1).await.unwrap().remaining(), 1, "both still count");
    assert!(new.renew(KEY, &kept).await.unwrap());
    drop(dropped);
    assert!(new.release(KEY, &kept).await.unwrap());
    assert_eq!(new.peek(KEY, 1).await.unwrap().remaining(), 3);
    assert_eq!(local(&store, "concurrency 3 ttl=1h", "others").peek(KEY, 1).await.unwrap().remaining(), 3);
}

#[tokio::test]
async fn local_leases_have_one_bound_per_store() {
    let (store, _server) = unavailable_store(3).await;
    let scopes = ["a", "b", "c", "d"].map(|scope| local(&store, "concurrency 10 ttl=1h", scope));
    let mut held = Vec::new();
    for jobs in &scopes[..3] {
        held.push(jobs.try_acquire(KEY, 1).await.unwrap().lease().unwrap());
    }
    let beyond = scopes[3].try_acquire(KEY, 1).await.unwrap();
    assert_eq!(
        (beyond.allowed(), beyond.source(), beyond.decision().denied_by()),
        (false, Source::Local, None)
    );
    held.pop();
    assert!(scopes[3].try_acquire(KEY, 1).await.unwrap().allowed());
    let (nowhere, _server) = unavailable_store(0).await;
    let jobs = RedisSemaphore::builder("concurrency 1 ttl=1h").in_store(&nowhere, "jobs");
    let made = jobs.on_store_failure(OnStoreFailure::Local).build();
    assert!(matches!(made, Err(BuildError::OutOfBounds { name: "max_leases", .. })), "{made:?}");
}
