//! Failovers and migrating slots, under load.

use crate::support::{Load, Report, alone, connect, connect_by_default, every_key_expires};
use redis_testkit::{Cluster, Options, Sentinels};
use sluicegate::backend::StoreFailure;
use sluicegate_redis::RedisStore;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_sentinel_failover_the_new_master_decides() {
    let _alone = alone().await;
    let all = Sentinels::start(&Options::redis());
    let store = connect_by_default(&all.url()).await;
    let load = Load::on(&store, "");
    load.makes(1500).await;
    all.failover();
    load.until_answered().await;
    load.makes(1500).await;
    let report = load.end("Sentinel failover").await;
    assert!(report.failed() > 0, "there was no master for a while");
    report.is_in_time();
    // Writes that the replica had not received when its master died are lost.
    report.admits_no_more(1);
    every_key_expires(all.servers().replica());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_migrate_under_load() {
    let _alone = alone().await;
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    migrate_slots(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "as above, on Valkey: cargo test -p sluicegate-redis --test it -- --ignored slots_move"]
async fn slots_migrate_under_load_on_valkey() {
    let _alone = alone().await;
    let Some(options) = Options::valkey() else { return };
    migrate_slots(&Cluster::start(&options, 3, 0)).await;
}

async fn migrate_slots(cluster: &Cluster) {
    // A server blocks while it migrates a key, on a busy machine for longer than the default
    // deadline.
    let report = migrate_slots_under(connect_by_default(&cluster.url()).await, cluster, "{hot}once").await;
    report.is_in_time();
    let report = migrate_slots_under(connect(&cluster.url()).await, cluster, "{hot}again").await;
    // `ASK` and `MOVED` are followed. A list of limits has several keys, and while a slot migrates
    // a server replies TRYAGAIN if one of them is missing.
    assert_eq!(report.failures_under_one_limit(), Vec::<&StoreFailure>::new());
}

async fn migrate_slots_under(store: RedisStore, cluster: &Cluster, keys: &'static str) -> Report {
    let slot = cluster.slot_of("hot");
    let home = cluster.owner_of(slot);
    let load = Load::on(&store, keys);
    for step in 0..4 {
        load.makes(500).await;
        let (from, to) = ((home + step) % 3, (home + step + 1) % 3);
        cluster.begin_move(slot, from, to);
        // New keys are already on the new node, and old ones on the old.
        load.makes(500).await;
        cluster.move_keys(slot, from, to);
        load.makes(200).await;
        cluster.end_move(slot, from, to);
    }
    load.until_answered().await;
    load.makes(500).await;
    let report = load.end("a slot moved four times").await;
    report.admits_no_more(0);
    every_key_expires(&cluster.nodes()[(home + 4) % 3]);
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_cluster_node_costs_no_more_than_the_deadline() {
    let _alone = alone().await;
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    let store = connect_by_default(&cluster.url()).await;
    let load = Load::on(&store, "");
    load.makes(1500).await;
    // Too short for the other nodes to take it for dead.
    let until = Instant::now() + Duration::from_millis(1200);
    cluster.nodes()[1].stop();
    sleep_until(until).await;
    cluster.nodes()[1].cont();
    load.makes(3000).await;
    let report = load.end("SIGSTOP of one node of three").await;
    let (failed, all) = (report.failed(), report.calls());
    assert!(failed > 0 && failed < all / 2, "{failed} of {all} failed, but two of three nodes are up");
    report.is_in_time();
    report.admits_no_more(0);
    cluster.nodes().iter().for_each(every_key_expires);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 10 s: cargo test -p sluicegate-redis --test it -- --ignored in_a_cluster"]
async fn a_cluster_replica_takes_over_for_a_dead_master() {
    let _alone = alone().await;
    let cluster = Cluster::start(&Options::redis(), 3, 1);
    let home = cluster.owner_of(cluster.slot_of("hot"));
    let store = connect_by_default(&cluster.url()).await;
    let load = Load::on(&store, "{hot}");
    load.makes(1500).await;
    cluster.nodes()[home].kill();
    let replica = &cluster.nodes()[3 + home];
    redis_testkit::until("the replica is the master", || replica.info("role") == "master");
    // The other nodes may still reply CLUSTERDOWN for a moment, so the load itself shows when all
    // are up.
    load.makes(3000).await;
    let report = load.end("a cluster's master killed").await;
    report.is_in_time();
    report.admits_no_more(1);
    every_key_expires(replica);
}
