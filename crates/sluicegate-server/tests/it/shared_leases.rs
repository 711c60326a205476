//! Leases in a store that two servers share.

use crate::leasing::{LONG_MS, hold, is_free, lease_in, release};
use crate::redis_store::Redis;
use crate::resp_client::TestServer;
use crate::running::{TEST_TIMEOUT, config, rule};
use redis_testkit::until;
use sluicegate_redis::WAITER_TTL_MAX;
use sluicegate_server::engine::{KeySpec, OnStoreFailure, RuleSpec};
use sluicegate_server::server::Config;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any reply takes on a busy machine; it also gives waiters their longest TTL.
const DEADLINE: Duration = Duration::from_secs(20);

fn rules() -> Vec<RuleSpec> {
    vec![rule("exports", &["concurrency 1 ttl=1h"])]
}

fn server(redis: &Redis) -> TestServer {
    redis.server(Config { rules: rules(), ..config() }, DEADLINE)
}

fn wait_for_waiters(redis: &Redis, len: usize) {
    until(&format!("{len} are in line"), || redis.in_line("acme") == len);
}

#[test]
fn a_lease_of_one_server_is_valid_on_the_other() {
    let redis = Redis::start();
    let servers = [server(&redis), server(&redis)];
    let [mut one, mut other] = servers.each_ref().map(TestServer::client);
    let lease = hold(&mut one, "acme");
    assert!(!is_free(&mut other, "acme") && is_free(&mut other, "other"));
    assert!(other.ask("RL.ACQUIRE exports acme").starts_with("*8|:0|:1|:0|:"));
    assert_eq!(other.ask(&format!("RL.RENEW exports acme {lease}")), ":1|");
    release(&mut other, "acme", &lease);
    assert_eq!(one.ask(&format!("RL.RELEASE exports acme {lease}")), ":0|");
    hold(&mut other, "acme");
    assert_eq!(one.ask("RL.RESET exports acme"), "+OK|");
    assert!(is_free(&mut other, "acme"));
    assert!(one.ask("RL.RELEASE exports acme nonsense").starts_with("-ERR "));
    assert!(one.ask("RL.CHECK exports acme").contains("use RL.ACQUIRE"));
    let view = servers[0].engine.rules().find("exports").unwrap().leases().unwrap();
    assert_eq!(
        (view.acquired, view.renewed, view.released, view.waiting, view.in_memory),
        (1, 0, 0, 0, None)
    );
}

#[test]
fn a_release_at_one_server_wakes_a_waiter_at_the_other() {
    let redis = Redis::start();
    let servers = [server(&redis), server(&redis)];
    let [mut one, mut other] = servers.each_ref().map(TestServer::client);
    let lease = hold(&mut one, "acme");
    assert!(other.ask("RL.ACQUIRE exports acme MAXWAIT 30").starts_with("*8|:0|"), "not granted in time");
    other.send(format!("RL.ACQUIRE exports acme MAXWAIT {LONG_MS}\r\nPING\r\n"));
    wait_for_waiters(&redis, 1);
    // The store knows of the waiter before the server has its reply.
    let waiting =
        |server: &TestServer| server.engine.rules().find("exports").unwrap().leases().unwrap().waiting;
    until("each server knows its own", || servers.each_ref().map(waiting) == [0, 1]);
    release(&mut one, "acme", &lease);
    assert!(lease_in(&other.shown()).is_some());
    assert_eq!(other.shown(), "+PONG|");
    wait_for_waiters(&redis, 0);
}

#[test]
fn a_waiter_that_disconnects_leaves_nothing_in_the_store() {
    let redis = Redis::start();
    let server = server(&redis);
    let mut holder = server.client();
    let lease = hold(&mut holder, "acme");
    for _ in 0..3 {
        let mut client = server.client();
        client.send(format!("RL.ACQUIRE exports acme MAXWAIT {LONG_MS}\r\n"));
        wait_for_waiters(&redis, 1);
        drop(client);
        let left = Instant::now();
        wait_for_waiters(&redis, 0);
        assert!(left.elapsed() < WAITER_TTL_MAX / 2, "its ticket was left to run out: {:?}", left.elapsed());
    }
    release(&mut holder, "acme", &lease);
    assert!(is_free(&mut holder, "acme"));
}

#[test]
fn a_stopping_server_answers_waiters() {
    let redis = Redis::start();
    let server = server(&redis);
    hold(&mut server.client(), "acme");
    let mut client = server.client();
    client.send("RL.ACQUIRE exports acme MAXWAIT 60000\r\n");
    wait_for_waiters(&redis, 1);
    let began = Instant::now();
    let stopping = thread::spawn(move || server.stop());
    assert!(client.shown().starts_with("*8|:0|:1|:0|"));
    stopping.join().unwrap();
    assert!(began.elapsed() < TEST_TIMEOUT, "{:?}", began.elapsed());
}

#[test]
fn a_changed_rule_and_a_new_exception_keep_held_leases() {
    let redis = Redis::start();
    let server = server(&redis);
    let mut client = server.client();
    let lease = hold(&mut client, "acme");
    server.engine.load(vec![rule("exports", &["concurrency 3 ttl=1h"])]).unwrap();
    assert!(client.ask("RL.PEEK exports acme").starts_with("*7|:1|:3|:2|"));
    let keys = vec![(b"acme".to_vec(), KeySpec::Limits(vec!["concurrency 2 ttl=1h".parse().unwrap()]))];
    server.engine.load(vec![RuleSpec { keys, ..rule("exports", &["concurrency 3 ttl=1h"]) }]).unwrap();
    assert!(client.ask("RL.PEEK exports acme").starts_with("*7|:1|:2|:1|"));
    release(&mut client, "acme", &lease);
}

/// One rule per fallback, in a server with a short deadline.
fn each_says(redis: &Redis) -> TestServer {
    let says =
        |name: &str, says| RuleSpec { on_store_failure: Some(says), ..rule(name, &["concurrency 1 ttl=1h"]) };
    let rules = vec![
        says("error", OnStoreFailure::Error),
        says("allow", OnStoreFailure::Allow),
        says("deny", OnStoreFailure::Deny),
        says("local", OnStoreFailure::Local),
    ];
    redis.server(Config { rules, ..config() }, Duration::from_millis(500))
}

#[test]
fn without_the_store_each_rule_uses_its_fallback() {
    let redis = Redis::start();
    let server = each_says(&redis);
    let mut client = server.client();
    let lease = lease_in(&client.ask("RL.ACQUIRE deny acme")).unwrap();
    redis.0.stop();
    assert!(client.ask("RL.ACQUIRE error acme").contains("the store"));
    let allowed = client.ask("RL.ACQUIRE allow acme");
    assert!(
        allowed.starts_with("*8|:1|") && allowed.ends_with("|$-1|$-1|"),
        "allowed, without a lease: {allowed}"
    );
    assert!(client.ask("RL.ACQUIRE deny acme").starts_with("*8|:0|"));
    assert!(client.ask(&format!("RL.RELEASE deny acme {lease}")).contains("the store"));
    // A lease in this server's memory stays valid while the store is unavailable and afterwards.
    let local = lease_in(&client.ask("RL.ACQUIRE local acme")).unwrap();
    assert!(client.ask("RL.ACQUIRE local acme").starts_with("*8|:0|:1|:0|"));
    assert_eq!(client.ask(&format!("RL.RENEW local acme {local}")), ":1|");
    redis.0.cont();
    assert_eq!(client.ask(&format!("RL.RELEASE local acme {local}")), ":1|");
    assert_eq!(client.ask(&format!("RL.RELEASE local acme {local}")), ":0|");
}

#[test]
fn a_waiter_gets_the_fallback_when_the_store_fails() {
    let redis = Redis::start();
    let server = each_says(&redis);
    let mut holder = server.client();
    redis.0.stop();
    let local = lease_in(&holder.ask("RL.ACQUIRE local acme")).unwrap();
    let waits = |rule: &str, ms: u64| {
        let mut client = server.client();
        client.send(format!("RL.ACQUIRE {rule} acme MAXWAIT {ms}\r\n"));
        client
    };
    let [mut error, mut allow, mut of_local] = ["error", "allow", "local"].map(|rule| waits(rule, LONG_MS));
    let mut deny = waits("deny", 300);
    assert!(error.shown().contains("the store"));
    let allowed = allow.shown();
    assert!(allowed.starts_with("*8|:1|") && allowed.ends_with("|$-1|$-1|"), "{allowed}");
    assert!(deny.shown().starts_with("*8|:0|"), "not granted in time");
    // In memory there is a queue too.
    let waiting = || server.engine.rules().find("local").unwrap().leases().unwrap().waiting;
    until("one is in line in memory", || waiting() == 1);
    assert_eq!(holder.ask(&format!("RL.RELEASE local acme {local}")), ":1|");
    assert!(lease_in(&of_local.shown()).is_some());
    // A waiter under `deny` gets its lease when the store is back.
    let mut deny = waits("deny", LONG_MS);
    redis.0.cont();
    assert!(lease_in(&deny.shown()).is_some());
}
