//! Clusters: routing, migrating slots, dead nodes.

use super::*;
use redis_testkit::{Cluster, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::time::timeout_at;

/// Keys on every master, several per master.
fn keys() -> Vec<String> {
    (0..30).map(|n| format!("key-{n}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_leads_to_the_whole_cluster() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let last = &cluster.nodes()[2];
    for url in [cluster.url(), format!("redis+cluster://127.0.0.1:1,127.0.0.1:{}", last.port())] {
        let link = link(&url).await;
        assert!(link.is_cluster());
        assert_eq!(link.health().iter().filter(|node| node.connected).count(), 3);
        for key in keys() {
            link.add(&key).await.unwrap();
        }
        let twice: Vec<ScriptCall> =
            keys().iter().flat_map(|key| [echo(key, key), echo(key, "second")]).collect();
        let wanted: Vec<_> = keys().iter().flat_map(|key| [text(key), text("second")]).collect();
        assert_eq!(link.each(&twice).await, wanted);
        // No call was redirected.
        for node in cluster.nodes() {
            assert!(!node.cli(&["INFO", "errorstats"]).contains("errorstat_MOVED"), "{url}");
        }
    }
    for key in keys() {
        let owner = &cluster.nodes()[cluster.owner_of(super::super::slot(key.as_bytes()))];
        assert_eq!(owner.cli(&["GET", &key]), "2");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_may_start_before_its_cluster() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    cluster.nodes().iter().for_each(Server::kill);
    let later = StoreSettings { connect_later: true, ..settings(&cluster.url(), SHORT) };
    let link = Link::connect(&later).await.expect("a link that connects later");
    down(&link).await;
    cluster.nodes().iter().for_each(Server::restart);
    back(&link).await;
    assert!(link.is_cluster());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_is_charged_once_while_a_slot_migrates() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let link = link(&cluster.url()).await;
    let slot = super::super::slot(b"{tag}");
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    link.add("{tag}old").await.unwrap();
    cluster.begin_move(slot, from, to);
    // Existing keys are answered by the old owner. New keys need ASK, and the new owner has no
    // script yet.
    assert_eq!(link.add("{tag}old").await, Ok(Value::Int(2)));
    assert_eq!(link.add("{tag}new").await, Ok(Value::Int(1)));
    let mixed = [add("{tag}new", 1), add("{tag}old", 1), add("elsewhere", 1)];
    assert_eq!(link.each(&mixed).await, [Ok(Value::Int(2)), Ok(Value::Int(3)), Ok(Value::Int(1))]);
    // Keys on both sides of the migration: rejected with the server's message, long before the
    // deadline.
    let mut split = ScriptCall::new(&ADD, &["{tag}old", "{tag}new"]);
    split.arg(1);
    let rejected = link.one(&split, Instant::now() + GENEROUS).await;
    assert!(
        matches!(&rejected, Err(StoreFailure::Rejected(why)) if why.contains("TRYAGAIN")),
        "{rejected:?}"
    );
    cluster.move_keys(slot, from, to);
    cluster.end_move(slot, from, to);
    assert_eq!(link.add("{tag}old").await, Ok(Value::Int(4)));
    assert_eq!(link.add("{tag}new").await, Ok(Value::Int(3)));
    // Soon no call is redirected any more.
    let moved = || cluster.nodes()[from].cli(&["INFO", "errorstats"]);
    eventually("the slot table is refreshed", async || {
        let before = moved();
        link.add("{tag}old").await.unwrap();
        moved() == before
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_migrates_under_load_fails_no_call() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let link = Arc::new(link(&cluster.url()).await);
    let done = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (link, done) = (Arc::clone(&link), Arc::clone(&done));
            tokio::spawn(async move {
                let key = format!("{{tag}}{caller}");
                let mut count = 0;
                while !done.load(Relaxed) {
                    let answers = link.each(&[add(&key, 1), add(&key, 1)]).await;
                    assert_eq!(answers, [Ok(Value::Int(count + 1)), Ok(Value::Int(count + 2))]);
                    assert_eq!(link.add(&key).await, Ok(Value::Int(count + 3)));
                    count += 3;
                }
                count
            })
        })
        .collect();
    let slot = super::super::slot(b"{tag}");
    let first = cluster.owner_of(slot);
    for step in 0..6 {
        cluster.move_slot(slot, (first + step) % 3, (first + step + 1) % 3);
    }
    done.store(true, Relaxed);
    for caller in callers {
        assert!(caller.await.unwrap() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_two_slots_are_rejected_with_the_servers_message() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let mut split = ScriptCall::new(&ADD, &["a", "b"]);
    split.arg(1);
    let rejected = link(&cluster.url()).await.one(&split, Instant::now() + GENEROUS).await;
    assert!(
        matches!(&rejected, Err(StoreFailure::Rejected(why)) if why.contains("CROSSSLOT")),
        "{rejected:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replica_of_a_dead_node_takes_over() {
    let cluster = Cluster::start(&Options::redis(), 3, 1);
    let link = link_with(&cluster.url(), SHORT).await;
    let slot = super::super::slot(b"k");
    let owner = cluster.owner_of(slot);
    link.add("k").await.unwrap();
    cluster.nodes()[owner].kill();
    eventually("the dead node is down", async || {
        matches!(link.add_soon("k").await, Err(StoreFailure::Unavailable(_)))
    })
    .await;
    eventually("the replica has taken over", async || link.add_soon("k").await.is_ok()).await;
    // All remaining nodes are in use, and the dead one is forgotten.
    eventually("all nodes are up", async || {
        let health = link.health();
        health.len() == 3 && health.iter().all(|node| node.connected && !node.breaker_open)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replica_of_a_frozen_node_takes_over() {
    let cluster = Cluster::start(&Options::redis(), 3, 1);
    let link = link_with(&cluster.url(), SHORT).await;
    let owner = cluster.owner_of(super::super::slot(b"k"));
    link.add("k").await.unwrap();
    cluster.nodes()[owner].stop();
    eventually("the frozen node is down", async || {
        matches!(link.add_soon("k").await, Err(StoreFailure::Unavailable(_)))
    })
    .await;
    eventually("the replica has taken over", async || link.add_soon("k").await.is_ok()).await;
    cluster.nodes()[owner].cont();
    for _ in 0..20 {
        assert!(link.add("k").await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_an_unfinished_migration_are_rejected_in_time() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let link = link(&cluster.url()).await;
    let slot = super::super::slot(b"{tag}");
    let from = cluster.owner_of(slot);
    link.add("{tag}old").await.unwrap();
    cluster.begin_move(slot, from, (from + 1) % 3);
    let mut split = ScriptCall::new(&ADD, &["{tag}old", "{tag}new"]);
    split.arg(1);
    // Too short for all attempts.
    let short = Duration::from_millis(50);
    let (mut refusals, mut late, mut unsent) = (0, 0, 0);
    while refusals < 10 {
        let until = Instant::now() + short;
        match timeout_at(until, link.one(&split, until)).await.expect("an answer in time") {
            Err(StoreFailure::Rejected(why)) if why.contains("TRYAGAIN") => refusals += 1,
            // A busy machine can delay any reply, and any call.
            Err(StoreFailure::TimedOut { .. }) if late < 10 => late += 1,
            Err(StoreFailure::Unavailable(why)) if why.contains("no time was left") && unsent < 10 => {
                unsent += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    let health = link.health();
    assert!(health.iter().all(|node| !node.breaker_open), "{health:?}");
    assert_eq!(health.iter().map(|node| node.failures).sum::<u64>(), late);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unusable_node_does_not_hide_the_others() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let owner = cluster.owner_of(super::super::slot(b"k"));
    cluster.nodes()[(owner + 1) % 3].cli(&["CONFIG", "SET", "requirepass", "secret"]);
    let later = StoreSettings { connect_later: true, ..settings(&cluster.url(), GENEROUS) };
    // A link queries a random node first, so there are many links.
    for wanted in 1..=20 {
        let link = Link::connect(&later).await.expect("a link that connects later");
        assert_eq!(link.add("k").await, Ok(Value::Int(wanted)));
    }
    // If every node rejects the login, connecting fails at once.
    for node in cluster.nodes() {
        node.cli(&["CONFIG", "SET", "requirepass", "secret"]);
    }
    let error = rejected(&cluster.url()).await;
    assert!(matches!(&error, ConnectError::Unfit(why) if why.contains("NOAUTH")), "{error}");
}
