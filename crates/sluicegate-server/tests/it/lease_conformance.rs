//! Compares leases over RESP and HTTP, in memory and in Redis, with the model on random traces.

use crate::http_client::{Raw, Serving, posted};
use crate::redis_store::Redis;
use crate::resp_client::{Client, TestServer, array};
use crate::running::{config, rule};
use fastrand::Rng;
use serde_json::{Value, json};
use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate_model::{Concurrency, Decision, LeaseNumber, Leases, RetryAfter};
use sluicegate_server::engine::RuleSpec;
use sluicegate_server::server::Config;
use std::collections::HashMap;
use std::time::Duration;

/// A server, over some protocol.
trait Wire {
    fn acquire(&mut self, key: &str, cost: u64) -> (WireDecision, Option<String>);
    fn peek(&mut self, key: &str, cost: u64) -> WireDecision;
    fn renew(&mut self, key: &str, lease: &str) -> bool;
    fn release(&mut self, key: &str, lease: &str) -> bool;
    fn reset(&mut self, key: &str);
}

/// A decision in whole milliseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
struct WireDecision {
    allowed: bool,
    limit: u64,
    remaining: u64,
    /// If denied; -2 for never.
    retry_after_ms: Option<i64>,
    reset_after_ms: u64,
}

const RULE: Concurrency = Concurrency { count: 5, ttl: Some(10_000_000) };

impl WireDecision {
    /// The model's answer as a server reports it. Rounded up: a caller that comes a moment too
    /// early would be denied.
    fn of(answer: &Decision) -> WireDecision {
        let ms_up = |us: u64| us.div_ceil(1_000);
        WireDecision {
            allowed: answer.allowed,
            limit: answer.limit,
            remaining: answer.remaining,
            retry_after_ms: answer.retry_after.map(|wait| match wait {
                RetryAfter::After(us) => i64::try_from(ms_up(us)).unwrap(),
                RetryAfter::Never => -2,
            }),
            reset_after_ms: ms_up(answer.reset_after),
        }
    }
}

/// A lease and when it was granted.
#[derive(Clone)]
struct Known {
    key: String,
    text: String,
    number: LeaseNumber,
}

fn rules() -> Vec<RuleSpec> {
    vec![rule("exports", &["concurrency 5 ttl=10s"])]
}

fn agrees_with_the_model(clock: &ManualClock, wire: &mut dyn Wire, steps: u32) {
    let mut rng = Rng::with_seed(8);
    let mut keys: HashMap<String, Leases> = HashMap::new();
    // All leases ever granted.
    let mut given: Vec<Known> = Vec::new();
    let (mut denied, mut renewed, mut gone) = (0, 0, 0);
    for step in 0..steps {
        clock.advance(Duration::from_micros(rng.u64(..3) * rng.u64(..600_000)));
        let now = clock.now().as_micros();
        let key = format!("key-{}", rng.u8(..3));
        let cost = rng.u64(..10).saturating_sub(2).min(RULE.count + 1);
        // Mostly one of the newest, of which some are live; of its own key, or of another.
        let lease = given.iter().rev().nth(rng.usize(..6)).cloned();
        let asks_of =
            |lease: &Known, rng: &mut Rng| if rng.u8(..8) == 0 { key.clone() } else { lease.key.clone() };
        match (rng.u8(..20), lease) {
            (0..9, _) => {
                let (expected, number) = keys.entry(key.clone()).or_default().acquire(RULE, now, cost);
                let (reported, text) = wire.acquire(&key, cost);
                assert_eq!(reported, WireDecision::of(&expected), "step {step}: acquire {key} {cost}");
                assert_eq!(text.is_some(), number.is_some(), "step {step}: {reported:?}");
                denied += u32::from(!reported.allowed);
                given.extend(text.zip(number).map(|(text, number)| Known { key, text, number }));
            }
            (9..12, _) => {
                let expected = keys.entry(key.clone()).or_default().peek(RULE, now, cost);
                assert_eq!(
                    wire.peek(&key, cost),
                    WireDecision::of(&expected),
                    "step {step}: peek {key} {cost}"
                );
            }
            (12..15, Some(lease)) => {
                let key = asks_of(&lease, &mut rng);
                let model = keys.entry(key.clone()).or_default();
                let is_live = key == lease.key && model.renew(RULE, now, lease.number);
                assert_eq!(wire.renew(&key, &lease.text), is_live, "step {step}: renew {key}");
                if is_live { renewed += 1 } else { gone += 1 }
            }
            (15..19, Some(lease)) => {
                let key = asks_of(&lease, &mut rng);
                let model = keys.entry(key.clone()).or_default();
                let is_live = key == lease.key && model.release(now, lease.number);
                assert_eq!(wire.release(&key, &lease.text), is_live, "step {step}: release {key}");
            }
            (19, _) if rng.u8(..4) == 0 => {
                wire.reset(&key);
                keys.entry(key).or_default().reset();
            }
            _ => {}
        }
    }
    let least = steps / 50;
    assert!(denied > least && renewed > least && gone > least, "{denied} {renewed} {gone} of {steps}");
}

struct OverResp(Client);

impl OverResp {
    fn ask(&mut self, words: &[&str]) -> String {
        self.0.send(array(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()));
        self.0.shown()
    }

    fn reported(reply: &str, items: &str) -> (WireDecision, Option<String>) {
        let fields: Vec<&str> =
            reply.strip_prefix(items).unwrap_or_else(|| panic!("{reply}")).split('|').collect();
        let number = |at: usize| fields[at][1..].parse::<i64>().unwrap();
        let whole = |at: usize| u64::try_from(number(at)).unwrap();
        let reported = WireDecision {
            allowed: number(0) == 1,
            limit: whole(1),
            remaining: whole(2),
            retry_after_ms: Some(number(3)).filter(|wait| *wait != -1),
            reset_after_ms: whole(4),
        };
        assert_eq!(number(5), 0, "there is no delay: {reply}");
        // `denied_by` is nil, or a length and a text; so is the lease, which a peek does not have.
        let at = if fields[6] == "$-1" { 7 } else { 8 };
        let has_lease = fields.get(at).is_some_and(|length| !["", "$-1"].contains(length));
        let lease = has_lease.then(|| fields[at + 1].to_owned());
        (reported, lease)
    }
}

impl Wire for OverResp {
    fn acquire(&mut self, key: &str, cost: u64) -> (WireDecision, Option<String>) {
        let reply = self.ask(&["RL.ACQUIRE", "exports", key, "COST", &cost.to_string()]);
        OverResp::reported(&reply, "*8|")
    }

    fn peek(&mut self, key: &str, cost: u64) -> WireDecision {
        OverResp::reported(&self.ask(&["RL.PEEK", "exports", key, "COST", &cost.to_string()]), "*7|").0
    }

    fn renew(&mut self, key: &str, lease: &str) -> bool {
        self.ask(&["RL.RENEW", "exports", key, lease]) == ":1|"
    }

    fn release(&mut self, key: &str, lease: &str) -> bool {
        self.ask(&["RL.RELEASE", "exports", key, lease]) == ":1|"
    }

    fn reset(&mut self, key: &str) {
        assert_eq!(self.ask(&["RL.RESET", "exports", key]), "+OK|");
    }
}

struct OverHttp(Raw);

impl OverHttp {
    fn ask(&mut self, path: &str, body: &Value) -> Value {
        self.0.send(posted(path, &body.to_string()));
        let (status, body) = self.0.answer();
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn reported(body: &Value) -> WireDecision {
        let number = |field: &str| body[field].as_u64().unwrap_or_else(|| panic!("{field} of {body}"));
        let allowed = body["allowed"].as_bool().unwrap();
        let wait = body["retry_after_ms"].as_i64().unwrap_or(-2);
        WireDecision {
            allowed,
            limit: number("limit"),
            remaining: number("remaining"),
            retry_after_ms: (!allowed).then_some(wait),
            reset_after_ms: number("reset_after_ms"),
        }
    }

    fn done(&mut self, path: &str, key: &str, lease: &str) -> bool {
        let body = self.ask(path, &json!({"rule": "exports", "key": key, "lease": lease}));
        body["done"].as_bool().unwrap()
    }
}

impl Wire for OverHttp {
    fn acquire(&mut self, key: &str, cost: u64) -> (WireDecision, Option<String>) {
        let body = self.ask("/v1/acquire", &json!({"rule": "exports", "key": key, "cost": cost}));
        (OverHttp::reported(&body), body["lease"].as_str().map(str::to_owned))
    }

    fn peek(&mut self, key: &str, cost: u64) -> WireDecision {
        OverHttp::reported(&self.ask("/v1/peek", &json!({"rule": "exports", "key": key, "cost": cost})))
    }

    fn renew(&mut self, key: &str, lease: &str) -> bool {
        self.done("/v1/renew", key, lease)
    }

    fn release(&mut self, key: &str, lease: &str) -> bool {
        self.done("/v1/release", key, lease)
    }

    fn reset(&mut self, key: &str) {
        assert_eq!(self.ask("/v1/reset", &json!({"rule": "exports", "key": key})), json!({"done": true}));
    }
}

#[test]
fn leases_over_resp_match_the_model() {
    let clock = ManualClock::default();
    let server = TestServer::start_at(Config { rules: rules(), ..config() }, &clock);
    agrees_with_the_model(&clock, &mut OverResp(server.client()), 20_000);
}

#[test]
fn leases_over_http_match_the_model() {
    let serving = Serving::start(Config { rules: rules(), ..config() });
    agrees_with_the_model(&serving.clock, &mut OverHttp(serving.connect()), 5_000);
}

#[test]
fn leases_over_resp_in_redis_match_the_model() {
    let (clock, redis) = (ManualClock::default(), Redis::start());
    let server = redis.server_at(Config { rules: rules(), ..config() }, &clock);
    agrees_with_the_model(&clock, &mut OverResp(server.client()), 5_000);
}

#[test]
fn leases_over_http_in_redis_match_the_model() {
    let redis = Redis::start();
    let serving = redis.serving(Config { rules: rules(), ..config() });
    agrees_with_the_model(&serving.clock, &mut OverHttp(serving.connect()), 2_000);
}
