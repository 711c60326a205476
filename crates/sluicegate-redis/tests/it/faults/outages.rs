//! A single server that fails and recovers under load.

use crate::support::{Load, alone, connect, connect_by_default, every_key_expires};
use redis_testkit::{Options, Proxy, Replicated, Server};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_with_persistence_never_exceeds_the_limit() {
    let _alone = alone().await;
    let server = Server::start(&Options::redis().append_only());
    kill_and_restart(&server, 0, "kill -9, everything on disk").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_without_persistence_only_loses_its_counts() {
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    kill_and_restart(&server, KILLS, "kill -9, nothing on disk").await;
}

const KILLS: u64 = 3;

async fn kill_and_restart(server: &Server, data_losses: u64, what: &str) {
    let store = connect_by_default(&server.url()).await;
    let load = Load::on(&store, "");
    for _ in 0..KILLS {
        load.makes(1500).await;
        server.kill();
        load.makes(500).await;
        server.restart();
        load.until_answered().await;
    }
    load.makes(1500).await;
    let report = load.end(what).await;
    assert!(report.failed() > 0, "a server that is down cannot answer");
    report.is_in_time();
    report.admits_no_more(data_losses);
    every_key_expires(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushing_scripts_every_10_ms_fails_no_call() {
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    // The deadline is not under test: no call may fail, however slow the machine is.
    let store = connect(&server.url()).await;
    let load = Load::on(&store, "");
    let mut client = server.client().unwrap();
    for _ in 0..150 {
        let next = Instant::now() + Duration::from_millis(10);
        assert_eq!(client.ask(&["SCRIPT", "FLUSH"]).unwrap().to_string(), "OK");
        sleep_until(next).await;
    }
    let report = load.end("SCRIPT FLUSH every 10 ms").await;
    assert_eq!(report.failed(), 0);
    report.admits_no_more(0);
    every_key_expires(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_frozen_for_2_s_costs_no_more_than_the_deadline() {
    freeze(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 10 s: cargo test -p sluicegate-redis --test it -- --ignored stands_still"]
async fn a_server_frozen_for_10_s_costs_no_more_than_the_deadline() {
    freeze(Duration::from_secs(10)).await;
}

async fn freeze(long: Duration) {
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let store = connect_by_default(&server.url()).await;
    let load = Load::on(&store, "");
    load.makes(1500).await;
    let until = Instant::now() + long;
    server.stop();
    sleep_until(until).await;
    server.cont();
    load.until_answered().await;
    load.makes(1500).await;
    let report = load.end(&format!("SIGSTOP for {long:?}")).await;
    assert!(report.failed() > 0, "a frozen server cannot answer");
    report.is_in_time();
    report.admits_no_more(0);
    every_key_expires(&server);
}

/// Like an address that moves to the new master. Until it does, the old one is a replica, and
/// rejects calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_decides_and_a_demoted_master_does_not() {
    let _alone = alone().await;
    let both = Replicated::start(&Options::redis());
    let proxy = Proxy::start(both.master().port());
    let store = connect_by_default(&proxy.url()).await;
    let load = Load::on(&store, "");
    load.makes(1500).await;
    both.promote();
    load.makes(500).await;
    proxy.send_to(both.replica().port());
    proxy.cut();
    load.until_answered().await;
    load.makes(1500).await;
    let report = load.end("replica promoted").await;
    assert!(report.failed() > 0, "a replica cannot answer");
    report.is_in_time();
    // Writes that the replica had not received when it was promoted are lost.
    report.admits_no_more(1);
    every_key_expires(both.replica());
}
