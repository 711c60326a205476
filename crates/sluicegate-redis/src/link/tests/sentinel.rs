//! A master under sentinels.

use super::*;
use redis_testkit::{Options, Sentinels};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_is_used() {
    let all = Sentinels::start(&Options::redis());
    let link = link_with(&all.url(), SHORT).await;
    link.add("k").await.unwrap();
    all.servers().wait_for_sync();
    all.servers().master().kill();
    back(&link).await;
    assert_eq!(link.add("k").await, Ok(Value::Int(2)));
    assert_eq!(all.servers().replica().cli(&["GET", "k"]), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_is_replaced_and_not_trusted_afterwards() {
    let all = Sentinels::start(&Options::redis());
    let link = link_with(&all.url(), SHORT).await;
    link.add("k").await.unwrap();
    all.servers().wait_for_sync();
    all.servers().master().stop();
    down(&link).await;
    back(&link).await;
    all.servers().master().cont();
    // The sentinels close its connections when they demote it, so the query may fail.
    let old = all.servers().master();
    let role = || old.client().and_then(|mut client| client.ask(&["ROLE"]));
    eventually("the old master is a replica", async || {
        role().is_ok_and(|role| role.to_string().starts_with("slave"))
    })
    .await;
    assert_eq!(link.add("k").await, Ok(Value::Int(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_master_name_is_an_error() {
    let all = Sentinels::start(&Options::redis());
    let error = rejected(&all.url().replace("/main", "/other")).await;
    assert!(error.to_string().contains("\"other\""), "{error}");
    // One answering sentinel is enough.
    all.sentinels()[0].kill();
    all.sentinels()[1].stop();
    assert_eq!(link(&all.url()).await.add("k").await, Ok(Value::Int(1)));
}
