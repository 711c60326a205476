//! Keys in a Redis that several servers share: the replies equal those from memory, and fallbacks
//! while it is unavailable.

use crate::redis_store::{DEADLINE, Redis};
use crate::resp_client::{Client, TestServer};
use crate::running::{config, rule};
use redis_testkit::until;
use sluicegate::Time;
use sluicegate::clock::ManualClock;
use sluicegate_server::engine::{KeySpec, OnStoreFailure, RuleSpec};
use sluicegate_server::server::Config;
use std::time::Duration;

/// Longer than Redis takes on a busy machine, and short enough to wait for.
const SHORT: Duration = Duration::from_millis(700);

fn with_rules(rules: &[(&str, &str)]) -> Config {
    Config { rules: rules.iter().map(|(name, limit)| rule(name, &[limit])).collect(), ..config() }
}

/// A rule with a fallback.
fn away(name: &str, limit: &str, says: OnStoreFailure) -> RuleSpec {
    RuleSpec { on_store_failure: Some(says), ..rule(name, &[limit]) }
}

/// Sends the same commands to two servers, in one piece, and returns the replies.
fn answers(clients: &mut [Client; 2], commands: &[String]) -> [Vec<String>; 2] {
    for client in clients.iter_mut() {
        client.send(commands.concat());
    }
    clients.each_mut().map(|client| commands.iter().map(|_| client.shown()).collect())
}

/// A reply without the receipt at its end, which differs between servers.
fn without_receipt(reply: &str) -> String {
    let is_receipt = |item: &&str| item.starts_with("m1.") || item.starts_with("s1.");
    let mut items: Vec<&str> = reply.split('|').collect();
    if let Some(index) = items.iter().position(is_receipt) {
        items.drain(index - 1..=index);
    }
    items.join("|")
}

fn everything() -> Config {
    let limits = |text: &str| KeySpec::Limits(vec![text.parse().unwrap()]);
    let keys = vec![
        (b"partner".to_vec(), limits("token-bucket 100/s burst=500")),
        (b"good".to_vec(), KeySpec::Unlimited),
        (b"bad".to_vec(), KeySpec::Blocked),
    ];
    let rules = vec![
        RuleSpec { keys, ..rule("api", &["token-bucket 10/s burst=5", "fixed-window 30/day"]) },
        rule("log", &["sliding-log 5/60s"]),
        RuleSpec { shadow: true, ..rule("trial", &["sliding-window 4/10s"]) },
        rule("paced", &["pacer 10/s queue=3"]),
        rule("smooth", &["smooth 5/s burst=4 start=2023-01-01T00:00:00Z"]),
    ];
    Config { rules, ..config() }
}

#[test]
fn a_pipeline_gets_equal_replies_from_redis_and_memory() {
    let (clock, redis) = (ManualClock::default(), Redis::start());
    let in_memory = TestServer::start_at(everything(), &clock);
    let in_redis = redis.server_at(everything(), &clock);
    let mut clients = [in_memory.client(), in_redis.client()];
    let mut dice = fastrand::Rng::with_seed(7);
    let mut now_us = 1_700_000_000_000_000;
    let (mut replies, mut denied) = (0, 0);
    for batch in 0..300 {
        now_us += dice.u64(0..3_000_000);
        clock.set(Time::from_micros(now_us).unwrap());
        let commands: Vec<String> = (0..dice.usize(1..200)).map(|_| command(&mut dice)).collect();
        let [memory, redis] = answers(&mut clients, &commands);
        for ((command, memory), redis) in commands.iter().zip(&memory).zip(&redis) {
            assert_eq!(without_receipt(redis), without_receipt(memory), "batch {batch}: {command}");
            denied += usize::from(redis.starts_with("*7|:0|"));
        }
        replies += commands.len();
    }
    assert!(replies > 20_000 && denied > 2_000, "{denied} of {replies}");
}

fn command(dice: &mut fastrand::Rng) -> String {
    let rules = [
        "api",
        "log",
        "trial",
        "paced",
        "smooth",
        "\"fixed-window 7/60s\"",
        "\"token-bucket 3/s\"",
        "\"smooth 3/s warmup=2s start=2023-01-01T00:00:00Z\"",
        "user:0",
    ];
    let keys = ["user:42", "user:7", "{acme}:user:9", "partner", "good", "bad"];
    let mut rule = || rules[dice.usize(..rules.len())];
    let (one, two) = (rule(), rule());
    let mut key = || keys[dice.usize(..keys.len())];
    let (key, other) = (key(), key());
    let cost = dice.u32(0..4);
    match dice.u32(0..100) {
        0..40 => format!("RL.CHECK {one} {key}\r\n"),
        40..50 => format!("RL.CHECK {one} {key} COST {cost} MAXWAIT 300\r\n"),
        50..60 => format!("RL.CHECK {one} {key} COST {cost}\r\n"),
        60..70 => format!("CL.THROTTLE {key} 4 30 60 {}\r\n", i64::from(cost) - 1),
        70..75 => format!("RL.PEEK {one} {key} COST {cost}\r\n"),
        75..82 => format!("RL.CHECKALL {one} {key} {cost} {two} {other} 1\r\n"),
        82..86 => format!("RL.TAKE {one} {key} {cost}\r\n"),
        86..90 => format!("RL.REFUND {one} {key} COST {cost}\r\n"),
        90..93 => format!("RL.RESERVE {one} {key} MAXWAIT 500\r\n"),
        93..95 => format!("RL.RESET {one} {key}\r\n"),
        95 | 96 => format!("RL.NEXT {one} {key}\r\n"),
        97 => format!("RL.USAGE {one} {key}\r\n"),
        98 => "RL.CHECK log\r\n".to_owned(),
        _ => "PING\r\n".to_owned(),
    }
}

#[test]
fn two_servers_share_a_limit() {
    let (clock, redis) = (ManualClock::default(), Redis::start());
    let rules = with_rules(&[("reply", "sliding-log 5/60s")]);
    let servers = [redis.server_at(rules.clone(), &clock), redis.server_at(rules, &clock)];
    let mut clients = servers.each_ref().map(TestServer::client);
    let mut ask = |turn: usize, what: &str| clients[turn % 2].ask(what);
    for turn in 0..5 {
        assert_eq!(ask(turn, "RL.CHECK reply user:42")[..6], *"*7|:1|", "call {turn}");
    }
    assert_eq!(ask(5, "RL.CHECK reply user:42")[..6], *"*7|:0|");
    assert_eq!(ask(6, "RL.CHECK reply user:42")[..6], *"*7|:0|");
    assert_eq!(ask(0, "RL.RESET reply user:42"), "+OK|");
    assert_eq!(ask(1, "RL.CHECK reply user:42")[..6], *"*7|:1|");
    for turn in 0..3 {
        let limited = if turn < 2 { "*5|:0|" } else { "*5|:1|" };
        assert_eq!(&ask(turn, "CL.THROTTLE user:42 1 1 60")[..6], limited);
    }
}

#[test]
fn a_receipt_of_one_server_is_valid_once_on_the_other() {
    let (clock, redis) = (ManualClock::default(), Redis::start());
    let rules = with_rules(&[("mail", "token-bucket 1/h burst=10")]);
    let servers = [redis.server_at(rules.clone(), &clock), redis.server_at(rules, &clock)];
    let [mut one, mut other] = servers.each_ref().map(TestServer::client);
    for rule in ["mail", "\"token-bucket 1/h burst=10\""] {
        let receipt = |reply: String| reply.rsplit('|').nth(2).unwrap().to_owned();
        let first = receipt(one.ask(&format!("RL.RESERVE {rule} user:42 COST 4")));
        let second = receipt(one.ask(&format!("RL.RESERVE {rule} user:42 COST 4")));
        assert_eq!(other.ask(&format!("RL.CANCEL {first}")), ":1|");
        assert_eq!(other.ask(&format!("RL.CANCEL {first}")), ":0|");
        assert_eq!(other.ask(&format!("RL.SETTLE {second} 1")), ":1|");
        assert_eq!(one.ask(&format!("RL.SETTLE {second} 1")), ":0|");
        assert_eq!(one.ask(&format!("RL.PEEK {rule} user:42"))[..14], *"*7|:1|:10|:9|:");
        servers[1].engine.load(Vec::new()).unwrap();
        let third = receipt(one.ask(&format!("RL.RESERVE {rule} user:42")));
        let known = if rule == "mail" { ":0|" } else { ":1|" };
        assert_eq!(other.ask(&format!("RL.CANCEL {third}")), known, "a rule that the other does not know");
    }
    assert!(one.ask("RL.CANCEL nonsense").starts_with("-ERR not a receipt"));
}

#[test]
fn an_initial_level_needs_a_start_in_redis() {
    let redis = Redis::start();
    let server = redis.server(config(), SHORT);
    let said = server.engine.load(vec![rule("slow", &["token-bucket 50/10s initial=0"])]).unwrap_err();
    let said = said.to_string();
    assert!(said.starts_with("rule slow: token-bucket 50/10s initial=0: "), "{said}");
    assert!(said.contains("add start=TIME"), "{said}");
    let said = server.client().ask("RL.CHECK \"token-bucket 50/10s initial=0\" user:42");
    assert!(said.starts_with("-ERR token-bucket 50/10s initial=0: "), "{said}");
    server
        .engine
        .load(vec![rule("slow", &["token-bucket 50/10s initial=0 start=2026-01-01T00:00:00Z"])])
        .unwrap();
}

/// One rule per fallback, and one with unlimited keys.
fn of_every_mind() -> Config {
    let good = vec![(b"good".to_vec(), KeySpec::Unlimited)];
    let rules = vec![
        RuleSpec { keys: good, ..away("error", "sliding-log 5/60s", OnStoreFailure::Error) },
        away("allow", "sliding-log 5/60s", OnStoreFailure::Allow),
        away("deny", "sliding-log 5/60s", OnStoreFailure::Deny),
        RuleSpec { local_share: Some(40), ..away("local", "sliding-log 5/60s", OnStoreFailure::Local) },
    ];
    Config { rules, ..config() }
}

#[test]
fn each_rule_uses_its_fallback_while_redis_is_down() {
    let redis = Redis::start();
    let server = redis.server(of_every_mind(), DEADLINE);
    let mut client = server.client();
    for name in ["error", "allow", "deny", "local"] {
        assert_eq!(client.ask(&format!("RL.CHECK {name} user:42"))[..12], *"*7|:1|:5|:4|", "{name}");
    }
    redis.0.kill();
    let said = client.ask("RL.CHECK error user:42");
    assert!(said.starts_with("-ERR the ") && said.contains("store"), "{said}");
    assert_eq!(client.ask("RL.CHECK error good")[..6], *"*7|:1|", "a key without limits needs no store");
    assert_eq!(client.ask("RL.CHECK allow user:42")[..6], *"*7|:1|");
    assert_eq!(client.ask("RL.CHECK deny user:42"), "*7|:0|:5|:0|:1000|:1000|:0|$-1|");
    let local: Vec<_> = (0..3).map(|_| client.ask("RL.CHECK local user:42")[..12].to_owned()).collect();
    assert_eq!(local, ["*7|:1|:2|:1|", "*7|:1|:2|:0|", "*7|:0|:2|:0|"], "40 % of the limit");
    // All at once, as for each alone.
    client.send("RL.CHECK allow a\r\nRL.CHECK error a\r\nRL.CHECK deny a\r\nPING\r\n");
    let all: Vec<_> = (0..4).map(|_| client.shown()[..5].to_owned()).collect();
    assert_eq!(all, ["*7|:1", "-ERR ", "*7|:0", "+PONG"]);
    assert_eq!(client.ask("RL.CHECKALL allow user:42 1 allow user:7 1")[..6], *"*9|:1|");
    assert_eq!(
        client.ask("RL.CHECKALL allow user:42 1 deny user:7 1"),
        "*9|:0|:0|:0|:1000|:1000|:0|$-1|$4|deny|:1|"
    );
    assert_eq!(client.ask("RL.CHECKALL allow user:42 1 local user:7 1")[..5], *"-ERR ");
    let info = client.ask("INFO store");
    assert!(info.contains("store_up:0|"), "{info}");
    redis.0.restart();
    until("the store answers again", || client.ask("RL.CHECK error user:42").starts_with("*7|:1|"));
    assert!(client.ask("INFO store").contains("store_up:1|"));
}

#[test]
fn check_all_combines_fallbacks_and_asks_redis_once() {
    let redis = Redis::start();
    let mut minds = of_every_mind();
    let trial = away("trial", "sliding-log 5/60s", OnStoreFailure::Deny);
    minds.rules.push(RuleSpec { shadow: true, ..trial });
    let server = redis.server(minds, SHORT);
    let mut client = server.client();
    assert_eq!(client.ask("RL.CHECK error user:42")[..6], *"*7|:1|");
    redis.0.stop();
    // None of these may be retried, as it may have been charged.
    for (failures, (calls, answer)) in (1..).zip([
        ("deny user:42 1 trial user:42 1", "*9|:0|"),
        ("allow user:42 1 trial user:42 1", "*9|:1|"),
        ("allow user:42 1 error good 1", "*9|:1|"),
    ]) {
        assert_eq!(&client.ask(&format!("RL.CHECKALL {calls}"))[..6], answer, "{calls}");
        let info = client.ask("INFO store");
        assert!(info.contains(&format!("store_failures:{failures}|")), "{calls}: {info}");
    }
    redis.0.cont();
}

#[test]
fn a_store_failure_over_http_is_503_and_never_429() {
    let redis = Redis::start();
    let serving = redis.serving(of_every_mind());
    let ask = |rule: &str, query: &str| {
        serving.post(&format!("/v1/check{query}"), &format!(r#"{{"rule":"{rule}","key":"user:42"}}"#))
    };
    let normal = ask("error", "").json();
    assert_eq!(normal.as_object().unwrap().len(), 9, "{normal}");
    assert_eq!(serving.get("/readyz").status, 200);
    redis.0.kill();
    let failed = ask("error", "");
    assert_eq!((failed.status, failed.header("Retry-After")), (503, Some("1")), "{failed:?}");
    assert!(failed.json()["error"].as_str().unwrap().contains("store"), "{failed:?}");
    for (rule, query, status, allowed, source) in [
        ("allow", "?enforce=true", 200, true, "allowed"),
        ("deny", "", 200, false, "denied"),
        ("deny", "?enforce=true", 503, false, "denied"),
        ("local", "?enforce=true", 200, true, "local"),
    ] {
        let reply = ask(rule, query);
        let body = reply.json();
        assert_eq!(reply.status, status, "{rule}{query}: {body}");
        assert_eq!((&body["allowed"], &body["source"]), (&allowed.into(), &source.into()), "{rule}: {body}");
        let reason = if rule == "deny" { "store_failed".into() } else { serde_json::Value::Null };
        assert_eq!(body["reason"], reason, "{body}");
    }
    let page = serving.get("/metrics").text;
    for line in [
        "sluice_store_up 0",
        "sluice_store_answers_total{source=\"store\"} 1",
        "sluice_store_answers_total{source=\"denied\"} 2",
        "sluice_store_answers_total{source=\"local\"} 1",
        "sluice_store_request_duration_seconds_count 1",
    ] {
        assert!(page.lines().any(|have| have == line), "{line}:\n{page}");
    }
    assert!(
        page.contains("sluice_store_failures_total{kind=\"disconnected\"} ") && !page.contains("sluice_keys")
    );
    assert_eq!(serving.get("/healthz").status, 200);
    assert_eq!(serving.get("/readyz").status, 503);
    let engine = &serving.server().service().engine;
    engine.load(vec![away("deny", "sliding-log 5/60s", OnStoreFailure::Deny)]).unwrap();
    assert_eq!(serving.get("/readyz").status, 200, "every rule can be answered");
    redis.0.restart();
    until("the store answers again", || ask("deny", "").json()["allowed"] == true);
}

#[test]
fn a_store_that_rejects_writes_makes_the_server_unready_until_it_accepts_one() {
    let redis = Redis::start();
    let serving = redis.serving(of_every_mind());
    let engine = &serving.server().service().engine;
    let ready = || serving.get("/readyz").text;
    for (setting, code) in [("maxmemory", "OOM"), ("min-replicas-to-write", "NOREPLICAS")] {
        assert_eq!(ready(), "ready\n");
        assert_eq!(redis.0.cli(&["CONFIG", "SET", setting, "1"]), "OK");
        let body = r#"{"rule":"error","key":"user:42"}"#;
        assert_eq!(serving.post("/v1/check", body).status, 503, "{setting}");
        let reply = serving.get("/readyz");
        let why = reply.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!(reply.status, 503, "{setting}: {why}");
        assert!(why.starts_with(&format!("the store rejects writes: {code} ")), "{why}");
        assert!(why.ends_with("; some rules have no fallback"), "{why}");
        let page = serving.get("/metrics").text;
        assert!(
            page.contains("\nsluice_store_up 1\n") && page.contains("\nsluice_store_writable 0\n"),
            "{page}"
        );
        engine.load(vec![away("deny", "sliding-log 5/60s", OnStoreFailure::Deny)]).unwrap();
        let by_fallbacks = ready();
        assert!(
            by_fallbacks.starts_with(&format!("ready, by fallbacks: the store rejects writes: {code} ")),
            "{by_fallbacks}"
        );
        engine.load(of_every_mind().rules).unwrap();
        assert_eq!(redis.0.cli(&["CONFIG", "SET", setting, "0"]), "OK");
        // No call is made: the server tries by itself.
        until("writes are accepted again", || ready() == "ready\n");
        assert!(serving.get("/metrics").text.contains("\nsluice_store_writable 1\n"));
    }
}

#[test]
fn a_disconnect_during_a_batch_affects_no_one_else() {
    let (clock, redis) = (ManualClock::default(), Redis::start());
    let server = redis.server_at(with_rules(&[("reply", "fixed-window 1000/day")]), &clock);
    let mut stays = server.client();
    assert_eq!(stays.ask("RL.CHECK reply user:42")[..14], *"*7|:1|:1000|:9");
    redis.0.stop();
    for _ in 0..10 {
        let mut leaves = server.client();
        leaves.send("RL.CHECK reply user:42\r\n".repeat(20));
        leaves.send("PING\r\n");
        drop(leaves);
    }
    stays.send("RL.CHECK reply user:7\r\nPING\r\n");
    redis.0.cont();
    assert_eq!(stays.shown()[..16], *"*7|:1|:1000|:999", "its own reply");
    assert_eq!(stays.shown(), "+PONG|");
    // Each batch was charged as a whole or not at all.
    let remaining = |reply: String| reply.split('|').nth(3).unwrap()[1..].parse::<u32>().unwrap();
    let left = remaining(stays.ask("RL.PEEK reply user:42"));
    assert_eq!((999 - left) % 20, 0, "{left}");
}

#[test]
fn a_server_stops_even_if_its_store_hangs() {
    let redis = Redis::start();
    let server = redis.server(with_rules(&[("reply", "fixed-window 1000/day")]), SHORT);
    let mut client = server.client();
    client.ask("RL.CHECK reply user:42");
    redis.0.stop();
    client.send("RL.CHECK reply user:42\r\n".repeat(300));
    server.stop();
    redis.0.cont();
}

#[test]
fn a_changed_limit_keeps_what_keys_have_used() {
    let (clock, redis) = (ManualClock::default(), Redis::start());
    let server = redis.server_at(with_rules(&[("reply", "fixed-window 5/day")]), &clock);
    let mut client = server.client();
    assert_eq!(client.ask("RL.CHECK reply user:42 COST 3")[..12], *"*7|:1|:5|:2|");
    server.engine.load(vec![rule("reply", &["fixed-window 10/day"])]).unwrap();
    assert_eq!(client.ask("RL.CHECK reply user:42")[..13], *"*7|:1|:10|:6|");
}
