//! Every endpoint, through a real client.

use crate::http_client::{Serving, posted};
use crate::redis_store::Redis;
use crate::running::{self, rule};
use serde_json::{Value, json};
use sluicegate::OnFull;
use sluicegate_server::engine::{KeySpec, RuleSpec, Settings};
use sluicegate_server::server::Config;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const REPLY: (&str, &str) = ("reply", "sliding-log 5/60s");
const USER_42: &str = r#"{"rule":"reply","key":"user:42"}"#;

/// The body of a response that must be 200.
fn ok(serving: &Serving, path: &str, body: &str) -> Value {
    let reply = serving.post(path, body);
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{reply:?}");
    reply.json()
}

#[test]
fn a_check_returns_all_nine_fields() {
    let serving = Serving::with_rules(&[REPLY]);
    let reply = serving.post("/v1/check", USER_42);
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.text,
        r#"{"allowed":true,"limit":5,"remaining":4,"retry_after_ms":null,"reset_after_ms":60000,"delay_ms":0,"denied_by":null,"reason":null,"denied":null}"#
    );
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""reply";q=5;w=60"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""reply";r=4;t=60"#));
    assert_eq!(reply.header("retry-after"), None);
}

#[test]
fn a_denial_has_a_reason_and_a_wait_rounded_up() {
    let serving = Serving::with_rules(&[REPLY]);
    ok(&serving, "/v1/check", r#"{"rule":"reply","key":"user:42","cost":5}"#);
    serving.clock.advance(Duration::from_micros(100));
    let reply = serving.post("/v1/check", USER_42);
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.json(),
        json!({
            "allowed": false, "limit": 5, "remaining": 0, "retry_after_ms": 60_000, "reset_after_ms": 60_000,
            "delay_ms": 0, "denied_by": "sliding-log 5/min", "reason": "limit",
            "denied": {"call": 0, "rule": "reply", "limit": "sliding-log 5/min"}
        }),
        "59999.9 ms are reported as 60000"
    );
    assert_eq!(reply.header("retry-after"), Some("60"));
    assert_eq!(reply.header("ratelimit"), Some(r#""reply";r=0;t=60"#));
}

#[test]
fn an_enforced_denial_is_429_with_problem_details() {
    let serving = Serving::with_rules(&[REPLY]);
    let allowed = serving.post("/v1/check?enforce=true", r#"{"rule":"reply","key":"user:42","cost":5}"#);
    assert_eq!(allowed.status, 200);
    let reply = serving.post("/v1/check?enforce=true", USER_42);
    assert_eq!((reply.status, reply.header("content-type")), (429, Some("application/problem+json")));
    assert_eq!(
        reply.json(),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Rate limit exceeded",
            "status": 429,
            "detail": "denied by sliding-log 5/min; retry in 60000 ms",
            "violated-policies": ["reply"],
            "allowed": false, "limit": 5, "remaining": 0, "retry_after_ms": 60_000, "reset_after_ms": 60_000,
            "delay_ms": 0, "denied_by": "sliding-log 5/min", "reason": "limit",
            "denied": {"call": 0, "rule": "reply", "limit": "sliding-log 5/min"}
        })
    );
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""reply";q=5;w=60"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""reply";r=0;t=60"#));
    assert_eq!(reply.header("retry-after"), Some("60"));
    assert_eq!(serving.post("/v1/check?enforce=false", USER_42).status, 200);
}

#[test]
fn never_has_no_wait() {
    let serving = Serving::with_rules(&[REPLY]);
    let reply = serving.post("/v1/check", r#"{"rule":"reply","key":"user:42","cost":6}"#);
    let body = reply.json();
    assert_eq!((&body["retry_after_ms"], &body["reason"]), (&Value::Null, &json!("cost_exceeds_limit")));
    assert_eq!(reply.header("retry-after"), None);
}

#[test]
fn a_limit_that_has_not_started_says_so() {
    let serving = Serving::with_rules(&[]);
    let body = ok(
        &serving,
        "/v1/check",
        r#"{"limit":"fixed-window 100/1h start=2026-11-11T00:00:00+08:00","key":"user:42"}"#,
    );
    assert_eq!((&body["allowed"], &body["reason"]), (&json!(false), &json!("not_started")));
}

#[test]
fn an_inline_limit_is_named_inline() {
    let serving = Serving::with_rules(&[]);
    let reply =
        serving.post("/v1/check", r#"{"limit":"token-bucket 10/s burst=50","key":"user:42","cost":2}"#);
    assert_eq!(reply.json()["remaining"], 48);
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""inline";q=10;w=1;sluice-burst=50"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""inline";r=48;t=1"#));
}

#[test]
fn a_window_of_fractional_seconds_has_no_w() {
    let serving = Serving::with_rules(&[]);
    let reply = serving.post("/v1/check", r#"{"limit":"min-interval 200ms","key":"user:42"}"#);
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""inline";q=1"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""inline";r=0;t=1"#));
}

/// A rule of several limits.
fn several_limits() -> Config {
    let rules = vec![rule("api", &["token-bucket 1/s burst=5", "fixed-window 7/day"])];
    Config { rules, ..running::config() }
}

#[test]
fn each_limit_of_a_rule_has_a_policy() {
    each_limit_has_a_policy(&Serving::start(several_limits()));
    each_limit_has_a_policy(&Redis::start().serving(several_limits()));
}

fn each_limit_has_a_policy(serving: &Serving) {
    let body = r#"{"rule":"api","key":"user:42","cost":4}"#;
    let reply = serving.post("/v1/check", body);
    assert_eq!(
        reply.header("ratelimit-policy"),
        Some(r#""api#1";q=1;w=1;sluice-burst=5, "api#2";q=7;w=86400"#)
    );
    assert_eq!(reply.header("ratelimit"), Some(r#""api#1";r=1;t=4, "api#2";r=3;t=6400"#));
    serving.clock.advance(Duration::from_secs(10));
    let reply = serving.post("/v1/check?enforce=true", body);
    assert_eq!(reply.json()["denied_by"], "fixed-window 7/d");
    assert_eq!(reply.json()["violated-policies"], json!(["api#2"]));
    assert_eq!(reply.header("ratelimit"), Some(r#""api#1";r=5;t=0, "api#2";r=3;t=6390"#));
    let checks = r#"{"checks":[{"rule":"api","key":"user:42"},{"rule":"api","key":"user:43","cost":2}]}"#;
    let reply = serving.post("/v1/check", checks);
    assert_eq!(
        reply.header("ratelimit"),
        Some(r#""api#1";r=3;t=2, "api#2";r=2;t=6390"#),
        "of two keys the one with less"
    );
}

/// Equal limits of a list have states of their own, so each has its own name.
#[test]
fn equal_limits_have_policies_of_their_own() {
    let serving = Serving::with_rules(&[]);
    let body = r#"{"limit":"fixed-window 9/h + fixed-window 9/h","key":"user:42"}"#;
    let reply = serving.post("/v1/check", body);
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""inline#1";q=9;w=3600, "inline#2";q=9;w=3600"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""inline#1";r=8;t=2800, "inline#2";r=8;t=2800"#));
}

#[test]
fn exceptions_have_policies_of_their_own() {
    let spec = RuleSpec {
        keys: vec![
            (b"partner-7".to_vec(), KeySpec::Limits(vec!["fixed-window 9/min".parse().unwrap()])),
            (b"health-check".to_vec(), KeySpec::Unlimited),
            (b"203.0.113.9".to_vec(), KeySpec::Blocked),
        ],
        ..rule("api", &["fixed-window 2/min"])
    };
    let serving = Serving::start(Config { rules: vec![spec], ..running::config() });
    let ask = |key| serving.post("/v1/check?enforce=true", &format!(r#"{{"rule":"api","key":"{key}"}}"#));
    assert_eq!(ask("user:42").header("ratelimit-policy"), Some(r#""api";q=2;w=60"#));
    assert_eq!(ask("partner-7").header("ratelimit-policy"), Some(r#""api";q=9;w=60"#));
    let unlimited = ask("health-check");
    assert_eq!(unlimited.header("ratelimit-policy"), Some(r#""api";q=1000000000000"#));
    assert_eq!(unlimited.json()["remaining"], 1_000_000_000_000_u64);
    let blocked = ask("203.0.113.9");
    assert_eq!((blocked.status, blocked.header("retry-after")), (429, None));
    assert_eq!(blocked.header("ratelimit-policy"), Some(r#""api";q=0"#));
    assert_eq!(blocked.json()["reason"], "blocked");
    assert_eq!(blocked.json()["detail"], "denied by blocked; retrying will not help");
}

#[test]
fn a_denial_for_lack_of_room_names_the_full_pool() {
    let settings = Settings {
        max_keys: 1,
        max_log_entries: 1,
        max_leases: 2,
        max_receipts: 0,
        on_full: OnFull::Deny,
        ..Settings::default()
    };
    let serving = Serving::start(Config { settings, ..running::config() });
    let body = |limit: &str, key: &str| json!({"limit": limit, "key": key}).to_string();
    let denied = |path: &str, limit: &str, key: &str| {
        let reply = ok(&serving, path, &body(limit, key));
        assert_eq!((&reply["allowed"], &reply["reason"]), (&json!(false), &json!("no_room")), "{reply}");
        assert_eq!(reply["denied_by"], Value::Null);
        reply["full_pool"].as_str().unwrap().to_owned()
    };
    assert_eq!(denied("/v1/check", "sliding-log 5/h", "user:42"), "log_entries");
    assert_eq!(ok(&serving, "/v1/check", &body("fixed-window 5/h", "user:42"))["full_pool"], Value::Null);
    assert_eq!(denied("/v1/check", "fixed-window 5/h", "user:43"), "keys");
    let leases = "concurrency 5 ttl=1h";
    (0..2).for_each(|_| assert_eq!(ok(&serving, "/v1/acquire", &body(leases, "acme"))["allowed"], true));
    assert_eq!(denied("/v1/acquire", leases, "acme"), "leases");
    let enforced = serving.post("/v1/acquire?enforce=true", &body(leases, "acme"));
    assert_eq!((enforced.status, &enforced.json()["full_pool"]), (429, &json!("leases")));
    let detail = enforced.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with("the store has no room: leases are at their maximum; retry in "), "{detail}");
    let receipts = serving.post("/v1/reserve", &body("fixed-window 5/h", "user:42"));
    assert_ne!(receipts.status, 200, "{receipts:?}");
    let page = serving.get("/metrics").text;
    for (pool, count) in [("keys", 1), ("log_entries", 1), ("leases", 2), ("receipts", 1), ("limits", 0)] {
        let line = format!("sluice_denied_no_room_total{{pool=\"{pool}\"}} {count}\n");
        assert!(page.contains(&line), "{line}: {page}");
    }
}

#[test]
fn a_shadow_rule_is_never_enforced() {
    let spec = RuleSpec { shadow: true, ..rule("api", &["fixed-window 2/min"]) };
    let serving = Serving::start(Config { rules: vec![spec], ..running::config() });
    let reply = serving.post("/v1/check?enforce=true", r#"{"rule":"api","key":"user:42","cost":3}"#);
    assert_eq!((reply.status, reply.header("retry-after")), (200, None));
    let body = reply.json();
    assert_eq!((&body["allowed"], &body["reason"]), (&json!(true), &json!("cost_exceeds_limit")));
}

#[test]
fn peek_charges_nothing() {
    let serving = Serving::with_rules(&[REPLY]);
    for _ in 0..3 {
        let reply = serving.post("/v1/peek", r#"{"rule":"reply","key":"user:42","cost":2}"#);
        assert_eq!((&reply.json()["allowed"], &reply.json()["remaining"]), (&json!(true), &json!(5)));
        assert_eq!(reply.header("ratelimit"), Some(r#""reply";r=5;t=0"#));
    }
    assert_eq!(
        serving.post("/v1/peek?enforce=true", r#"{"rule":"reply","key":"user:42","cost":6}"#).status,
        429
    );
}

#[test]
fn take_returns_the_cost_charged() {
    let serving = Serving::with_rules(&[REPLY]);
    let body = r#"{"rule":"reply","key":"user:42","cost":3}"#;
    assert_eq!(ok(&serving, "/v1/take", body)["taken"], 3);
    assert_eq!(ok(&serving, "/v1/take", body)["taken"], 2);
    let nothing = serving.post("/v1/take?enforce=true", body);
    assert_eq!((nothing.status, &nothing.json()["taken"]), (429, &json!(0)));
}

#[test]
fn a_reservation_can_be_cancelled_once() {
    let serving = Serving::with_rules(&[("api", "token-bucket 1/s burst=2")]);
    let body = r#"{"rule":"api","key":"user:42","cost":2,"max_wait_ms":1500}"#;
    let first = ok(&serving, "/v1/reserve", body);
    assert_eq!((&first["allowed"], &first["delay_ms"]), (&json!(true), &json!(0)));
    let denied = serving.post("/v1/reserve", body);
    assert_eq!((&denied.json()["receipt"], &denied.json()["retry_after_ms"]), (&Value::Null, &json!(500)));
    assert_eq!(denied.header("retry-after"), Some("1"), "half a second, rounded up");
    let waits = ok(&serving, "/v1/reserve", r#"{"rule":"api","key":"user:42","max_wait_ms":1500}"#);
    assert_eq!(waits["delay_ms"], 1000);
    let cancel = format!(r#"{{"receipt":{}}}"#, waits["receipt"]);
    assert_eq!(ok(&serving, "/v1/cancel", &cancel), json!({"done": true}));
    assert_eq!(ok(&serving, "/v1/cancel", &cancel), json!({"done": false}));
}

#[test]
fn a_check_may_be_delayed() {
    let serving = Serving::with_rules(&[("mail", "smooth 10/s"), REPLY]);
    let first = ok(&serving, "/v1/check", r#"{"rule":"mail","key":"user:42","cost":20}"#);
    assert_eq!((&first["allowed"], &first["delay_ms"]), (&json!(true), &json!(0)));
    let denied = serving.post("/v1/check", r#"{"rule":"mail","key":"user:42","max_wait_ms":1500}"#);
    assert_eq!((&denied.json()["allowed"], &denied.json()["retry_after_ms"]), (&json!(false), &json!(500)));
    let waits = ok(&serving, "/v1/check", r#"{"rule":"mail","key":"user:42","max_wait_ms":2000}"#);
    assert_eq!((&waits["allowed"], &waits["delay_ms"]), (&json!(true), &json!(2000)));
    let refunded = ok(&serving, "/v1/refund", r#"{"rule":"mail","key":"user:42","cost":3}"#);
    assert_eq!(refunded["remaining"], 3);
    let several = r#"{"checks":[{"rule":"reply","key":"user:42"}],"max_wait_ms":1}"#;
    assert_eq!(serving.post("/v1/check", several).status, 400);
}

#[test]
fn settling_returns_the_unused_cost() {
    let serving = Serving::with_rules(&[REPLY]);
    let reserved = ok(&serving, "/v1/reserve", r#"{"rule":"reply","key":"user:42","cost":5}"#);
    let settle = format!(r#"{{"receipt":{},"cost":2}}"#, reserved["receipt"]);
    assert_eq!(ok(&serving, "/v1/settle", &settle), json!({"done": true}));
    assert_eq!(ok(&serving, "/v1/settle", &settle), json!({"done": false}));
    assert_eq!(ok(&serving, "/v1/peek", USER_42)["remaining"], 3);
}

#[test]
fn refund_returns_cost() {
    let serving = Serving::with_rules(&[REPLY]);
    ok(&serving, "/v1/check", r#"{"rule":"reply","key":"user:42","cost":5}"#);
    let reply = serving.post("/v1/refund", r#"{"rule":"reply","key":"user:42","cost":2}"#);
    assert_eq!(reply.json()["remaining"], 2);
    assert_eq!(reply.header("ratelimit"), Some(r#""reply";r=2;t=60"#));
}

#[test]
fn reset_deletes_the_key() {
    let serving = Serving::with_rules(&[REPLY]);
    ok(&serving, "/v1/check", r#"{"rule":"reply","key":"user:42","cost":5}"#);
    assert_eq!(ok(&serving, "/v1/reset", USER_42), json!({"done": true}));
    assert_eq!(ok(&serving, "/v1/peek", USER_42)["remaining"], 5);
}

#[test]
fn next_is_a_unix_time_in_milliseconds_rounded_up() {
    let serving = Serving::with_rules(&[REPLY]);
    ok(&serving, "/v1/check", USER_42);
    serving.clock.advance(Duration::from_secs(1));
    assert_eq!(ok(&serving, "/v1/next", USER_42), json!({"next_ms": 1_700_000_060_000_u64}));
    let idle = r#"{"rule":"reply","key":"Sally"}"#;
    serving.clock.advance(Duration::from_micros(1));
    assert_eq!(ok(&serving, "/v1/next", idle), json!({"next_ms": 1_700_000_001_001_u64}));
}

#[test]
fn usage_has_an_entry_for_each_limit() {
    let serving = Serving::with_rules(&[REPLY]);
    ok(&serving, "/v1/check", USER_42);
    serving.clock.advance(Duration::from_micros(1));
    let no_window = json!({
        "text": "sliding-log 5/min", "limit": 5, "used": 1, "remaining": 4, "reset_after_ms": 60_000,
        "window_start_ms": null, "window_end_ms": null
    });
    assert_eq!(ok(&serving, "/v1/usage", USER_42), json!({"limits": [no_window]}));
    let body = r#"{"limit":"fixed-window 1000/month + token-bucket 1/s burst=9","key":"tenant:acme"}"#;
    ok(&serving, "/v1/check", &body.replace('}', r#","cost":3}"#));
    let usage = ok(&serving, "/v1/usage", body);
    let november = json!({
        "text": "fixed-window 1000/month", "limit": 1000, "used": 3, "remaining": 997,
        "reset_after_ms": 1_388_800_000, "window_start_ms": 1_698_796_800_000_u64,
        "window_end_ms": 1_701_388_800_000_u64
    });
    assert_eq!(usage["limits"][0], november);
    assert_eq!((&usage["limits"][1]["used"], usage["limits"].as_array().unwrap().len()), (&json!(3), 2));
    let refused = serving.post("/v1/usage", r#"{"rule":"reply","key":"user:42","cost":1}"#);
    assert_eq!(refused.status, 400);
}

#[test]
fn a_denial_names_its_call_and_rule() {
    let spec = RuleSpec {
        keys: vec![(b"203.0.113.9".to_vec(), KeySpec::Blocked), (b"vip".to_vec(), KeySpec::Unlimited)],
        ..rule("per-ip", &["token-bucket 10/s", "fixed-window 3/day"])
    };
    let serving = Serving::start(Config {
        rules: vec![rule("reply", &["sliding-log 5/60s"]), spec],
        ..running::config()
    });
    let denied = |ip: &str, cost: u64| {
        let body = json!({"checks": [
            {"limit": "fixed-window 9/h + fixed-window 1k/day", "key": "k"},
            {"rule": "per-ip", "key": "vip"},
            {"rule": "per-ip", "key": ip, "cost": cost},
            {"rule": "reply", "key": "user:42"}
        ]});
        let reply = ok(&serving, "/v1/check", &body.to_string());
        let each = reply["checks"].as_array().unwrap().iter().map(|check| check["denied"].clone());
        (reply["denied"].clone(), each.collect::<Vec<_>>())
    };
    let nothing = Value::Null;
    assert_eq!(denied("198.51.100.7", 3), (nothing.clone(), vec![nothing.clone(); 4]));
    let by_ip = |limit: &str| json!({"call": 2, "rule": "per-ip", "limit": limit});
    let only = |denial: Value| vec![nothing.clone(), nothing.clone(), denial, nothing.clone()];
    let day = by_ip("fixed-window 3/d");
    assert_eq!(denied("198.51.100.7", 1), (day.clone(), only(day)));
    let blocked = by_ip("blocked");
    assert_eq!(denied("203.0.113.9", 0), (blocked.clone(), only(blocked)));
    let inline = r#"{"checks":[{"rule":"reply","key":"j"},{"limit":"2/s + fixed-window 1_000/day","key":"j","cost":3}]}"#;
    let inline = inline.replace("2/s", "token-bucket 2/s");
    let denial =
        json!({"call": 1, "rule": "token-bucket 2/s + fixed-window 1000/d", "limit": "token-bucket 2/s"});
    assert_eq!(ok(&serving, "/v1/check", &inline)["denied"], denial);
}

#[test]
fn several_checks_are_all_or_nothing() {
    let serving = Serving::with_rules(&[REPLY, ("address", "fixed-window 2/min")]);
    let both =
        r#"{"checks":[{"rule":"reply","key":"user:42"},{"rule":"address","key":"10.0.0.1","cost":2}]}"#;
    let reply = serving.post("/v1/check", both);
    let body = reply.json();
    assert_eq!((&body["allowed"], &body["remaining"], &body["limit"]), (&json!(true), &json!(0), &json!(2)));
    assert_eq!(body["checks"].as_array().unwrap().len(), 2);
    assert_eq!(body["checks"][0]["remaining"], 4);
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""reply";q=5;w=60, "address";q=2;w=60"#));
    let reply = serving.post("/v1/check?enforce=true", both);
    assert_eq!((reply.status, &reply.json()["violated-policies"]), (429, &json!(["address"])));
    assert_eq!(reply.json()["checks"].as_array().unwrap().len(), 2);
    assert_eq!(ok(&serving, "/v1/peek", USER_42)["remaining"], 4, "a denial charges nothing");
}

#[test]
fn policies_of_several_checks_have_names_of_their_own() {
    let serving = Serving::with_rules(&[REPLY]);
    let reply = serving.post(
        "/v1/check",
        r#"{"checks":[
            {"limit":"fixed-window 7/min start=first","key":"user:42"},
            {"limit":"fixed-window 9/h start=first","key":"user:42"},
            {"limit":"fixed-window 9/h start=first","key":"Sally"},
            {"rule":"reply","key":"user:42"},
            {"rule":"reply","key":"Sally","cost":2}
        ]}"#,
    );
    assert_eq!(
        reply.header("ratelimit-policy"),
        Some(r#""inline#1";q=7;w=60, "inline#2";q=9;w=3600, "reply";q=5;w=60"#)
    );
    let reported = r#""inline#1";r=6;t=60, "inline#2";r=8;t=3600, "reply";r=3;t=60"#;
    assert_eq!(reply.header("ratelimit"), Some(reported), "of two keys the one with less");
}

#[test]
fn an_inline_list_has_a_policy_for_each_limit() {
    let serving = Serving::with_rules(&[]);
    let body = r#"{"limit":"token-bucket 10/s burst=50 + fixed-window 1k/h","key":"tenant:acme","cost":40}"#;
    let reply = serving.post("/v1/check", body);
    assert_eq!(
        reply.header("ratelimit-policy"),
        Some(r#""inline#1";q=10;w=1;sluice-burst=50, "inline#2";q=1000;w=3600"#)
    );
    let denied = serving.post("/v1/check", body).json();
    assert_eq!(
        (&denied["allowed"], &denied["denied_by"]),
        (&json!(false), &json!("token-bucket 10/s burst=50"))
    );
    let alone = serving.post("/v1/check", r#"{"limit":"5/s","key":"tenant:acme"}"#);
    assert_eq!(
        (alone.status, alone.error().as_str()),
        (
            400,
            r#"5/s: "5/s" is a rate without an algorithm; name an algorithm, for example token-bucket 5/s"#
        )
    );
}

#[test]
fn an_unavailable_decision_is_503_with_problem_details() {
    let serving = Serving::with_rules(&[("many", "token-bucket 1/h burst=20000")]);
    let reserve = || serving.post("/v1/reserve", r#"{"rule":"many","key":"user:42"}"#);
    // The number of receipts per key is bounded.
    let reply = std::iter::repeat_with(reserve).take(20_000).find(|reply| reply.status != 200).unwrap();
    assert_eq!((reply.status, reply.header("content-type")), (503, Some("application/problem+json")));
    let body = reply.json();
    assert_eq!((&body["type"], &body["status"]), (&json!("about:blank"), &json!(503)));
    assert_eq!(body["title"], "Service Unavailable");
    assert!(body["detail"].as_str().unwrap().contains("receipts"), "{body}");
}

#[test]
fn a_key_may_be_base64() {
    let serving = Serving::with_rules(&[REPLY]);
    ok(&serving, "/v1/check", USER_42);
    assert_eq!(ok(&serving, "/v1/peek", r#"{"rule":"reply","key_base64":"dXNlcjo0Mg=="}"#)["remaining"], 4);
    assert_eq!(ok(&serving, "/v1/peek", r#"{"rule":"reply","key_base64":"dXNlcjo0Mg"}"#)["remaining"], 4);
    assert_eq!(ok(&serving, "/v1/check", r#"{"rule":"reply","key_base64":"/wD+"}"#)["remaining"], 4);
    assert_eq!(ok(&serving, "/v1/check", r#"{"rule":"reply","key":""}"#)["remaining"], 4);
}

#[test]
fn the_rules_are_listed_in_order() {
    let rules = vec![
        rule("reply", &["sliding-log 5/60s"]),
        rule("api", &["token-bucket 10/1s", "fixed-window 9/day"]),
    ];
    let serving = Serving::start(Config { rules, ..running::config() });
    let reply = serving.get("/v1/rules");
    assert_eq!(
        reply.json(),
        json!({"rules": [
            {"name": "reply", "limits": ["sliding-log 5/min"], "shadow": false},
            {"name": "api", "limits": ["token-bucket 10/s", "fixed-window 9/d"], "shadow": false}
        ]})
    );
}

#[test]
fn health_readiness_and_metrics_are_served() {
    let serving = Serving::with_rules(&[]);
    let health = serving.get("/healthz");
    assert_eq!((health.status, health.text.as_str()), (200, "ok\n"));
    assert_eq!(serving.get("/readyz").status, 200);
    let metrics = serving.get("/metrics");
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((metrics.status, metrics.header("content-type")), (200, Some(content_type)));
    assert!(metrics.text.ends_with("# EOF\n"), "{}", metrics.text);
}

/// The path, the body, and what the error must contain.
const MISTAKES: [(&str, &str, &str); 24] = [
    ("/v1/check", "", "the body is incomplete JSON"),
    ("/v1/check", "[]", "the body is a list, not an object"),
    ("/v1/check", r#"{"rule":"reply","key":"user:42"} x"#, "not valid JSON at line 1, column 34"),
    (
        "/v1/check",
        r#"{"rule":"reply","key":"user:42","coast":2}"#,
        "POST /v1/check does not take \"coast\"; did you mean \"cost\"?",
    ),
    ("/v1/check", r#"{"rule":"reply","rule":"reply","key":"user:42"}"#, "\"rule\" is given twice"),
    ("/v1/check", r#"{"rule":"reply","key":7}"#, "\"key\" is 7, not a string; write the key as a string"),
    (
        "/v1/check",
        r#"{"rule":"reply","key":"user:42","cost":-1}"#,
        "\"cost\" is -1; use a whole number of at least 0",
    ),
    (
        "/v1/check",
        r#"{"rule":"reply","key":"user:42","cost":1.5}"#,
        "\"cost\" is 1.5; use a whole number of at least 0",
    ),
    ("/v1/check", r#"{"rule":"reply","key":"user:42","cost":1000000000001}"#, "use at most 1000000000000"),
    ("/v1/check", r#"{"key":"user:42"}"#, "\"rule\" is missing"),
    ("/v1/check", r#"{"rule":"reply","limit":"sliding-log 5/60s","key":"user:42"}"#, "are both set"),
    ("/v1/check", r#"{"rule":"reply"}"#, "\"key\" is missing"),
    ("/v1/check", r#"{"rule":"reply","key":"user:42","key_base64":"dXNlcjo0Mg=="}"#, "are both set"),
    ("/v1/check", r#"{"rule":"reply","key_base64":"H*rry"}"#, "which is not base64"),
    ("/v1/check", r#"{"rule":"sliding-log 5/60s","key":"user:42"}"#, "put a limit into \"limit\""),
    ("/v1/check", r#"{"limit":"reply","key":"user:42"}"#, "put a rule name into \"rule\""),
    ("/v1/check", r#"{"limit":"sliding-log 5/60x","key":"user:42"}"#, "unknown unit \"x\""),
    ("/v1/check", r#"{"rule":"orders","key":"user:42"}"#, "no rule is called \"orders\""),
    ("/v1/check", r#"{"checks":[]}"#, "\"checks\" is empty"),
    ("/v1/check", r#"{"checks":[{"rule":"reply","key":"user:42"}],"cost":2}"#, "does not take \"cost\""),
    (
        "/v1/peek",
        r#"{"checks":[{"rule":"reply","key":"user:42"}]}"#,
        "/v1/peek does not take \"checks\"; it takes rule,",
    ),
    ("/v1/cancel", r#"{"receipt":"nonsense"}"#, "not a receipt"),
    ("/v1/cancel", "{}", "\"receipt\" is missing"),
    ("/v1/settle", r#"{"receipt":"nonsense"}"#, "\"cost\" is missing"),
];

#[test]
fn headers_are_of_the_rule_that_decided() {
    let serving = Serving::with_rules(&[REPLY]);
    let engine = Arc::clone(&serving.server().service().engine);
    let done = AtomicBool::new(false);
    let wrong = std::thread::scope(|scope| {
        scope.spawn(|| {
            for limit in ["sliding-log 5/60s", "sliding-log 7/60s"].into_iter().cycle() {
                engine.load(vec![rule("reply", &[limit])]).unwrap();
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let ask = |_| serving.post("/v1/check", r#"{"rule":"reply","key":"user:42","cost":0}"#);
        let wrong = (0..500).map(ask).find(|reply| {
            let policy = format!("\"reply\";q={};w=60", reply.json()["limit"]);
            reply.header("ratelimit-policy") != Some(&policy)
        });
        done.store(true, Ordering::Relaxed);
        wrong
    });
    assert!(wrong.is_none(), "{wrong:?}");
}

#[test]
fn an_error_repeats_little_of_the_request() {
    let serving = Serving::with_rules(&[REPLY]);
    let long = "\\u0001\\n\\u009b".repeat(1_000);
    for (body, advice) in [
        (format!(r#"{{"rule":"a {long}","key":"user:42"}}"#), "put a limit into \"limit\""),
        (format!(r#"{{"limit":"{long}","key":"user:42"}}"#), "put a rule name into \"rule\""),
        (format!(r#"{{"{long}":1}}"#), "does not take"),
        (format!(r#"{{"rule":"reply","key":"user:42","cost":"{long}"}}"#), "is the string"),
    ] {
        let error = serving.post("/v1/check", &body).error();
        assert!(error.len() < 600 && !error.contains(char::is_control), "{error:?}");
        assert!(error.contains(advice), "{error}");
    }
    let long = "x".repeat(8_000);
    let query = serving.post(&format!("/v1/check?{long}"), USER_42).error();
    assert!(query.len() < 600 && query.contains("the only one is ?enforce=true"), "{query}");
    let path = serving.get(&format!("/{long}")).error();
    assert!(path.len() < 600 && path.contains("GET /openapi.json lists all paths"), "{path}");
}

#[test]
fn an_invalid_request_is_400_and_says_why() {
    let serving = Serving::with_rules(&[REPLY]);
    for (path, body, says) in MISTAKES {
        let reply = serving.post(path, body);
        assert_eq!((reply.status, reply.header("content-type")), (400, Some("application/json")), "{body}");
        assert!(reply.error().contains(says), "{body}: {}", reply.error());
    }
    let query = serving.post("/v1/check?enforce=yes", USER_42);
    assert!(query.error().contains("the only one is ?enforce=true"), "{query:?}");
    assert_eq!(ok(&serving, "/v1/peek", USER_42)["remaining"], 5, "none of these was charged");
}

#[test]
fn inline_limits_can_be_disabled() {
    let settings = Settings { allow_inline: false, ..running::config().settings };
    let serving = Serving::start(Config { settings, ..running::config() });
    let reply = serving.post("/v1/check", r#"{"limit":"sliding-log 5/60s","key":"user:42"}"#);
    assert_eq!(reply.status, 400);
    assert!(reply.error().contains("allow_inline = false"));
}

#[test]
fn an_unsupported_verb_is_rejected() {
    let serving = Serving::with_rules(&[("paced", "pacer 10/s queue=20")]);
    let reply = serving.post("/v1/refund", r#"{"rule":"paced","key":"user:42"}"#);
    assert_eq!(reply.status, 400, "{reply:?}");
}

#[test]
fn unknown_paths_and_methods_say_what_exists() {
    let serving = Serving::with_rules(&[]);
    let unknown = serving.get("/v2/check");
    assert_eq!(unknown.status, 404);
    assert!(unknown.error().contains("GET /openapi.json"));
    let got = serving.get("/v1/check");
    assert_eq!((got.status, got.header("allow")), (405, Some("POST")));
    assert!(got.error().contains("does not support GET"));
    let sent = serving.post("/v1/rules", "{}");
    assert_eq!((sent.status, sent.header("allow")), (405, Some("GET,HEAD")));
}

#[test]
fn requests_may_be_pipelined() {
    let serving = Serving::with_rules(&[REPLY]);
    let mut raw = serving.connect();
    raw.send(posted("/v1/check", USER_42).repeat(3));
    for remaining in [4, 3, 2] {
        let (status, body) = raw.answer();
        assert_eq!(status, 200);
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["remaining"], remaining);
    }
}

#[test]
fn a_stopping_server_finishes_requests_and_closes() {
    let serving = Serving::with_rules(&[REPLY]);
    let mut idle = serving.connect();
    let mut used = serving.connect();
    used.send(posted("/v1/check", USER_42));
    assert_eq!(used.answer().0, 200);
    let (mut begun, request) = (serving.connect(), posted("/v1/check", USER_42));
    let mut asks_whether_ready = serving.connect();
    begun.send(&request[..request.len() - 1]);
    asks_whether_ready.send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n");
    // Connections from before this one are served too.
    let mut other = serving.connect();
    other.send(posted("/v1/peek", USER_42));
    assert_eq!(other.answer().0, 200);
    let stopping = serving.stop();
    assert_eq!(idle.until_closed(), "");
    assert_eq!(used.until_closed(), "");
    begun.send(&request[request.len() - 1..]);
    assert!(begun.until_closed().starts_with("HTTP/1.1 200 OK\r\n"));
    asks_whether_ready.send("\r\n");
    let answer = asks_whether_ready.until_closed();
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
    assert!(answer.contains(r#""detail":"the server is stopping""#), "{answer}");
    stopping.wait();
}

/// Fields by name only: a list of values could be mistaken for fields by position.
#[test]
fn a_list_is_not_a_request() {
    let serving = Serving::with_rules(&[("reply", "sliding-log 5/60s")]);
    for body in [r#"["reply",null,"user:42"]"#, r#"{"checks":[["reply",null,"user:42"]]}"#, "null", "5"] {
        let reply = serving.post("/v1/check", body);
        assert_eq!(reply.status, 400, "{body}");
        assert!(reply.error().contains("not an object"), "{}", reply.error());
    }
}
