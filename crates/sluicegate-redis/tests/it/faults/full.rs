//! A store that is out of memory and evicts nothing.

use crate::support::{LONG, Load, alone, connect, connect_by_default, every_key_expires, limiter};
use redis_testkit::{Options, Server};
use sluicegate::backend::{BackendError, StoreFailure};
use sluicegate_redis::{RedisLimiter, check_all};
use std::time::Duration;

#[tokio::test]
async fn a_full_store_rejects_calls_and_writes_nothing() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let [bucket, window, log] = ["token-bucket", "fixed-window", "sliding-log"]
        .map(|limit| limiter(&store, &format!("{limit} 10/{LONG}")));
    let limits = [format!("token-bucket 10/{LONG}"), format!("sliding-log 10/{LONG}")];
    let list = RedisLimiter::builder(limits).in_store(&store, "list").build().unwrap();
    let all = [&bucket, &window, &log, &list];
    for limiter in all {
        assert!(limiter.check("old").await.unwrap().allowed());
    }
    let digest = || server.cli(&["DEBUG", "DIGEST"]);
    let before = digest();
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    for limiter in all {
        for key in ["old", "new"] {
            let failure = limiter.check(key).await.expect_err("no memory");
            assert!(is_out_of_memory(&failure), "{failure:?}");
            assert!(
                matches!(limiter.take(key, 2).await, Err(BackendError::Store(failure)) if is_out_of_memory(&failure))
            );
            let reserved = limiter.reserve(key, 1, Duration::ZERO).await;
            assert!(matches!(reserved, Err(BackendError::Store(failure)) if is_out_of_memory(&failure)));
            let calls = [bucket.call(b"together", 1), limiter.call(key.as_bytes(), 1)];
            let together = check_all(&calls).await;
            assert!(matches!(together, Err(BackendError::Store(failure)) if is_out_of_memory(&failure)));
        }
    }
    assert_eq!(digest(), before);
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    for limiter in all {
        assert_eq!(limiter.check("old").await.unwrap().remaining(), 8);
    }
}

fn is_out_of_memory(failure: &StoreFailure) -> bool {
    matches!(failure, StoreFailure::Rejected(why) if why.contains("OOM") || why.contains("memory"))
        && !failure.may_have_charged()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_full_at_times_never_exceeds_the_limit() {
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let store = connect_by_default(&server.url()).await;
    let load = Load::on(&store, "");
    for _ in 0..20 {
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
        load.makes(100).await;
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
        load.until_answered().await;
        load.makes(200).await;
    }
    let report = load.end("memory full twenty times").await;
    assert!(report.failed() > 0, "the store was full");
    report.is_in_time();
    report.admits_no_more(0);
    every_key_expires(&server);
}
