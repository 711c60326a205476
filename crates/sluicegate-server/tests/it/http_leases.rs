//! Leases over HTTP: responses, waiting, and clients that disconnect.

use crate::http_client::{Raw, Serving, posted};
use crate::leasing::{self, LONG_MS};
use crate::running::{config, rule};
use serde_json::{Value, json};
use sluicegate_server::connection_limits::ConnectionLimits;
use sluicegate_server::server::Config;
use std::time::{Duration, Instant};

fn serving() -> Serving {
    Serving::with_rules(&[("exports", "concurrency 1 ttl=30s"), ("reply", "sliding-log 5/60s")])
}

fn ask(serving: &Serving, path: &str, body: &Value) -> Value {
    let reply = serving.post(path, &body.to_string());
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// Acquires the key's only lease.
fn hold(serving: &Serving, key: &str) -> String {
    let taken = ask(serving, "/v1/acquire", &json!({"rule": "exports", "key": key}));
    taken["lease"].as_str().unwrap_or_else(|| panic!("{taken}")).to_owned()
}

fn done(serving: &Serving, path: &str, key: &str, lease: &str) -> bool {
    ask(serving, path, &json!({"rule": "exports", "key": key, "lease": lease}))["done"].as_bool().unwrap()
}

fn wait_for_waiters(serving: &Serving, len: usize) {
    leasing::wait_for_waiters(&serving.server().service().engine, len);
}

/// A client that waits for the lease of acme.
fn in_line(serving: &Serving) -> Raw {
    let mut raw = serving.connect();
    let body = format!(r#"{{"rule":"exports","key":"acme","max_wait_ms":{LONG_MS}}}"#);
    raw.send(posted("/v1/acquire", &body));
    raw
}

#[test]
fn replies() {
    let serving = serving();
    let acme = json!({"rule": "exports", "key": "acme"});
    let reply = serving.post("/v1/acquire", &acme.to_string());
    assert_eq!(reply.header("ratelimit-policy"), Some("\"exports\";q=1"));
    assert_eq!(reply.header("ratelimit"), Some("\"exports\";r=0;t=30"));
    let lease = reply.json()["lease"].as_str().unwrap().to_owned();
    let denied = serving.post("/v1/acquire?enforce=true", &acme.to_string());
    assert_eq!((denied.status, denied.header("retry-after")), (429, Some("30")));
    assert_eq!((&denied.json()["lease"], &denied.json()["reason"]), (&Value::Null, &json!("limit")));
    serving.clock.advance(Duration::from_secs(10));
    assert!(done(&serving, "/v1/renew", "acme", &lease));
    assert_eq!(ask(&serving, "/v1/peek", &acme)["retry_after_ms"], 30_000);
    assert!(!done(&serving, "/v1/release", "other", &lease));
    assert!(done(&serving, "/v1/release", "acme", &lease) && !done(&serving, "/v1/renew", "acme", &lease));
    let lease = hold(&serving, "acme");
    serving.clock.advance(Duration::from_secs(30));
    assert!(!done(&serving, "/v1/renew", "acme", &lease), "it has expired");
    hold(&serving, "acme");
    assert_eq!(ask(&serving, "/v1/reset", &acme), json!({"done": true}));
    let bytes = json!({"limit": "concurrency 2 ttl=1s", "key_base64": "AAE=", "cost": 2});
    assert_eq!(ask(&serving, "/v1/acquire", &bytes)["remaining"], 0);
}

#[test]
fn errors_say_what_to_write() {
    let serving = serving();
    let error = |path: &str, body: Value| {
        let reply = serving.post(path, &body.to_string());
        assert_eq!(reply.status, 400, "{reply:?}");
        reply.error()
    };
    let acme = json!({"rule": "exports", "key": "acme"});
    for path in ["/v1/check", "/v1/take", "/v1/reserve", "/v1/refund", "/v1/next"] {
        assert!(error(path, acme.clone()).ends_with("use RL.ACQUIRE or POST /v1/acquire"), "{path}");
    }
    assert!(error("/v1/check", json!({"checks": [acme]})).ends_with("use RL.ACQUIRE or POST /v1/acquire"));
    let reply = json!({"rule": "reply", "key": "user:42"});
    assert_eq!(
        error("/v1/acquire", reply),
        "only a concurrency limit grants leases; use RL.CHECK or POST /v1/check"
    );
    assert_eq!(
        error("/v1/release", acme.clone()),
        "\"lease\" is missing; send the lease that /v1/acquire returned"
    );
    let wrong = json!({"rule": "exports", "key": "acme", "lease": "x"});
    assert!(error("/v1/renew", wrong).starts_with("not a lease"));
    assert!(error("/v1/acquire", json!({"limit": "concurrency 2", "key": "acme"})).contains("ttl=30s"));
    let long = json!({"rule": "exports", "key": "acme", "max_wait_ms": 60_001});
    assert_eq!(
        error("/v1/acquire", long),
        "a wait of 60001 ms is too long; use at most 60000 ms (lease_wait_max) and retry"
    );
    let off = ConnectionLimits { lease_wait_max: None, ..ConnectionLimits::default() };
    let rules = vec![rule("exports", &["concurrency 1 ttl=30s"])];
    let serving = Serving::start(Config { limits: off, rules, ..config() });
    let waits = json!({"rule": "exports", "key": "acme", "max_wait_ms": 1}).to_string();
    assert!(serving.post("/v1/acquire", &waits).error().contains("lease_wait_max = \"off\""));
}

#[test]
fn a_waiter_is_answered_when_its_lease_is_granted() {
    let serving = serving();
    let lease = hold(&serving, "acme");
    let mut line: Vec<Raw> = Vec::new();
    for place in 0..3 {
        line.push(in_line(&serving));
        wait_for_waiters(&serving, place + 1);
    }
    let mut lease = lease;
    for mut raw in line {
        assert!(done(&serving, "/v1/release", "acme", &lease));
        let (status, body) = raw.answer();
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["allowed"]), (200, &json!(true)));
        lease = body["lease"].as_str().unwrap().to_owned();
        // The connection stays usable.
        raw.send(posted("/v1/peek", r#"{"rule":"exports","key":"acme"}"#));
        assert!(raw.answer().1.contains(r#""allowed":false"#));
    }
}

#[test]
fn a_waiter_gets_an_expired_lease_or_is_denied_in_time() {
    let serving = serving();
    hold(&serving, "acme");
    let mut waits = in_line(&serving);
    wait_for_waiters(&serving, 1);
    serving.clock.advance(Duration::from_secs(30));
    assert!(waits.answer().1.contains(r#""allowed":true"#));
    let mut in_vain = serving.connect();
    in_vain.send(posted("/v1/acquire", r#"{"rule":"exports","key":"acme","max_wait_ms":5000}"#));
    wait_for_waiters(&serving, 1);
    serving.clock.advance(Duration::from_secs(5));
    let (status, body) = in_vain.answer();
    assert!(
        status == 200 && body.contains(r#""allowed":false"#) && body.contains(r#""lease":null"#),
        "{body}"
    );
}

#[test]
fn a_waiter_that_disconnects_leaves_the_queue() {
    let serving = serving();
    let lease = hold(&serving, "acme");
    // Also with a byte of the next request behind, or all of it: hyper does not poll the socket
    // then.
    let next = posted("/v1/peek", r#"{"rule":"exports","key":"acme"}"#);
    for sent in ["", "P", &next] {
        let mut client = in_line(&serving);
        wait_for_waiters(&serving, 1);
        client.send(sent);
        drop(client);
        wait_for_waiters(&serving, 0);
    }
    assert!(done(&serving, "/v1/release", "acme", &lease));
    hold(&serving, "acme");
}

/// Each client disconnects about when its lease is granted: the lease is not lost.
#[test]
fn a_disconnect_behind_another_request_is_detected() {
    let serving = serving();
    for _ in 0..20 {
        let lease = hold(&serving, "acme");
        let mut client = in_line(&serving);
        client.send("P");
        wait_for_waiters(&serving, 1);
        drop(client);
        assert!(done(&serving, "/v1/release", "acme", &lease));
        let waits = json!({"rule": "exports", "key": "acme", "max_wait_ms": LONG_MS});
        let next = ask(&serving, "/v1/acquire", &waits);
        assert!(done(&serving, "/v1/release", "acme", next["lease"].as_str().unwrap()));
    }
}

#[test]
fn a_stopping_server_answers_waiters() {
    let serving = serving();
    hold(&serving, "acme");
    let mut client = in_line(&serving);
    wait_for_waiters(&serving, 1);
    let began = Instant::now();
    let stopping = serving.stop();
    let (status, body) = client.answer();
    assert!(status == 200 && body.contains(r#""allowed":false"#), "{status} {body}");
    drop(client);
    stopping.wait();
    assert!(began.elapsed() < Duration::from_millis(LONG_MS), "{:?}", began.elapsed());
}
