//! One server that goes away and comes back, under load.

use crate::support::{Load, alone, connect, connect_by_default, every_key_expires};
use redis_testkit::{Options, Proxy, Replicated, Server};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_comes_back_with_its_data_admits_no_more() {
    let _alone = alone().await;
    let server = Server::start(&Options::redis().append_only());
    killed_and_back(&server, 0, "kill -9, everything on disk").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_empty_has_forgotten_and_nothing_else() {
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    killed_and_back(&server, KILLS, "kill -9, nothing on disk").await;
}

const KILLS: u64 = 3;

async fn killed_and_back(server: &Server, times_forgotten: u64, what: &str) {
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
    report.admits_no_more(times_forgotten);
    every_key_expires(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_scripts_are_flushed_every_10_ms() {
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    // The deadline is not what is tested: no call may fail, however slow the machine is.
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
async fn a_server_that_stands_still_for_2_s_costs_no_more_than_the_deadline() {
    stands_still(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 10 s: cargo test -p sluicegate-redis --test it -- --ignored stands_still"]
async fn a_server_that_stands_still_for_10_s_costs_no_more_than_the_deadline() {
    stands_still(Duration::from_secs(10)).await;
}

async fn stands_still(long: Duration) {
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
    assert!(report.failed() > 0, "a server that stands still cannot answer");
    report.is_in_time();
    report.admits_no_more(0);
    every_key_expires(&server);
}

/// As behind an address that moves to the new master. Until it does, the old one is a replica, and refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_takes_over_and_a_master_that_became_a_replica_decides_nothing() {
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
    // What the replica had not got yet when it was promoted is lost.
    report.admits_no_more(1);
    every_key_expires(both.replica());
}
