//! Leases in a store that two servers share.

use crate::redis_store::Redis;
use crate::resp_client::{Client, Place};
use crate::running::{config, rule};
use sluicegate_server::engine::{KeySpec, OnStoreFailure, RuleSpec};
use sluicegate_server::server::Config;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any answer takes, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(20);

fn rules() -> Vec<RuleSpec> {
    vec![rule("exports", &["concurrency 1 ttl=1h"])]
}

fn place(redis: &Redis) -> Place {
    redis.place(Config { rules: rules(), ..config() }, DEADLINE)
}

fn lease_in(reply: &str) -> Option<String> {
    let (_, lease) = reply.strip_prefix("*8|:1|")?.split_once("$-1|$")?;
    Some(lease.split('|').nth(1)?.to_owned())
}

fn hold(client: &mut Client, key: &str) -> String {
    let reply = client.ask(&format!("RL.ACQUIRE exports {key}"));
    lease_in(&reply).unwrap_or_else(|| panic!("no lease in {reply}"))
}

fn is_free(client: &mut Client, key: &str) -> bool {
    client.ask(&format!("RL.PEEK exports {key}")).starts_with("*7|:1|")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        thread::yield_now();
    }
}

#[test]
fn a_lease_of_one_server_counts_and_is_good_on_the_other() {
    let redis = Redis::start();
    let places = [place(&redis), place(&redis)];
    let [mut one, mut other] = places.each_ref().map(Place::client);
    let lease = hold(&mut one, "acme");
    assert!(!is_free(&mut other, "acme") && is_free(&mut other, "somebody"));
    assert!(other.ask("RL.ACQUIRE exports acme").starts_with("*8|:0|:1|:0|:"));
    assert_eq!(other.ask(&format!("RL.RENEW exports acme {lease}")), ":1|");
    assert_eq!(other.ask(&format!("RL.RELEASE exports acme {lease}")), ":1|");
    assert_eq!(one.ask(&format!("RL.RELEASE exports acme {lease}")), ":0|");
    hold(&mut other, "acme");
    assert_eq!(one.ask("RL.RESET exports acme"), "+OK|");
    assert!(is_free(&mut other, "acme"));
    assert!(one.ask("RL.RELEASE exports acme nonsense").starts_with("-ERR "));
    assert!(one.ask("RL.CHECK exports acme").contains("use RL.ACQUIRE"));
    let view = places[0].engine.rules().find("exports").unwrap().leases().unwrap();
    assert_eq!((view.acquired, view.renewed, view.released, view.here), (1, 0, 0, None));
}

#[test]
fn who_waits_at_one_server_has_the_place_that_is_returned_at_the_other() {
    let redis = Redis::start();
    let places = [place(&redis), place(&redis)];
    let [mut one, mut other] = places.each_ref().map(Place::client);
    let lease = hold(&mut one, "acme");
    assert!(other.ask("RL.ACQUIRE exports acme MAXWAIT 30").starts_with("*8|:0|"), "in vain");
    other.send("RL.ACQUIRE exports acme MAXWAIT 30000\r\nPING\r\n");
    assert_eq!(one.ask(&format!("RL.RELEASE exports acme {lease}")), ":1|");
    assert!(lease_in(&other.shown()).is_some());
    assert_eq!(other.shown(), "+PONG|");
}

#[test]
fn a_client_that_leaves_while_it_waits_leaves_nothing_in_the_store() {
    let redis = Redis::start();
    let place = place(&redis);
    let mut holder = place.client();
    let lease = hold(&mut holder, "acme");
    for _ in 0..3 {
        let mut client = place.client();
        client.send("PING\r\nRL.ACQUIRE exports acme MAXWAIT 30000\r\n");
        client.shown();
        drop(client);
    }
    assert_eq!(holder.ask(&format!("RL.RELEASE exports acme {lease}")), ":1|");
    // What was given to somebody who had just left comes back, and their places in line go.
    wait_until("the place is free", || is_free(&mut holder, "acme"));
}

#[test]
fn a_server_that_stops_answers_those_who_wait() {
    let redis = Redis::start();
    let place = place(&redis);
    hold(&mut place.client(), "acme");
    let mut client = place.client();
    client.send("PING\r\nRL.ACQUIRE exports acme MAXWAIT 60000\r\n");
    client.shown();
    let began = Instant::now();
    let stopping = thread::spawn(move || place.stop());
    assert!(client.shown().starts_with("*8|:0|:1|:0|"));
    stopping.join().unwrap();
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn a_changed_rule_and_a_new_exception_keep_the_leases_that_are_out() {
    let redis = Redis::start();
    let place = place(&redis);
    let mut client = place.client();
    let lease = hold(&mut client, "acme");
    place.engine.load(vec![rule("exports", &["concurrency 3 ttl=1h"])]).unwrap();
    assert!(client.ask("RL.PEEK exports acme").starts_with("*7|:1|:3|:2|"));
    let keys = vec![(b"acme".to_vec(), KeySpec::Limits(vec!["concurrency 2 ttl=1h".parse().unwrap()]))];
    place.engine.load(vec![RuleSpec { keys, ..rule("exports", &["concurrency 3 ttl=1h"]) }]).unwrap();
    assert!(client.ask("RL.PEEK exports acme").starts_with("*7|:1|:2|:1|"));
    assert_eq!(client.ask(&format!("RL.RELEASE exports acme {lease}")), ":1|");
}

#[test]
fn without_the_store_each_rule_answers_as_it_says() {
    let redis = Redis::start();
    let says =
        |name: &str, says| RuleSpec { on_store_failure: Some(says), ..rule(name, &["concurrency 1 ttl=1h"]) };
    let rules = vec![
        says("error", OnStoreFailure::Error),
        says("allow", OnStoreFailure::Allow),
        says("deny", OnStoreFailure::Deny),
    ];
    let place = redis.place(Config { rules, ..config() }, Duration::from_millis(200));
    let mut client = place.client();
    let lease = lease_in(&client.ask("RL.ACQUIRE deny acme")).unwrap();
    redis.0.stop();
    assert!(client.ask("RL.ACQUIRE error acme").starts_with("-ERR the store"));
    let allowed = client.ask("RL.ACQUIRE allow acme");
    assert!(
        allowed.starts_with("*8|:1|") && allowed.ends_with("|$-1|$-1|"),
        "allowed, without a lease: {allowed}"
    );
    assert!(client.ask("RL.ACQUIRE deny acme").starts_with("*8|:0|"));
    assert!(client.ask(&format!("RL.RELEASE deny acme {lease}")).starts_with("-ERR the store"));
    redis.0.cont();
}
