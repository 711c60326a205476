//! Leases over RESP and HTTP, in memory and in Redis, held against a plain list of leases on random traces.

use crate::http_client::{Raw, Serving, posted};
use crate::redis_store::Redis;
use crate::resp_client::{Client, Place, array};
use crate::running::{config, rule};
use serde_json::{Value, json};
use sluicegate::{Clock as _, ManualClock};
use sluicegate_server::engine::RuleSpec;
use sluicegate_server::server::Config;
use std::collections::HashMap;
use std::time::Duration;

/// What is asked of a server over some wire.
trait Wire {
    fn acquire(&mut self, key: &str, cost: u64) -> (Told, Option<String>);
    fn peek(&mut self, key: &str, cost: u64) -> Told;
    fn renew(&mut self, key: &str, lease: &str) -> bool;
    fn release(&mut self, key: &str, lease: &str) -> bool;
    fn reset(&mut self, key: &str);
}

/// A decision in whole milliseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Told {
    allowed: bool,
    limit: u64,
    remaining: u64,
    /// When denied; -2 for never.
    retry_after_ms: Option<i64>,
    reset_after_ms: u64,
}

/// The leases of a key, as anybody would write them down.
#[derive(Clone, Default)]
struct Model {
    leases: Vec<Held>,
}

#[derive(Clone)]
struct Held {
    text: String,
    cost: u64,
    until_us: u64,
}

const COUNT: u64 = 5;
const TTL_US: u64 = 10_000_000;

fn ms_up(us: u64) -> u64 {
    us.div_ceil(1_000)
}

impl Model {
    /// What is told of a cost now. `after`: how the key stands after it was taken.
    fn told(&mut self, now_us: u64, cost: u64) -> Told {
        self.leases.retain(|lease| now_us < lease.until_us);
        let sum: u64 = self.leases.iter().map(|lease| lease.cost).sum();
        let mut by_end: Vec<&Held> = self.leases.iter().collect();
        by_end.sort_by_key(|lease| lease.until_us);
        let allowed = cost == 0 || sum + cost <= COUNT;
        let mut left = sum;
        let retry_after_ms = by_end
            .iter()
            .find_map(|lease| {
                left -= lease.cost;
                (left + cost <= COUNT).then(|| i64::try_from(ms_up(lease.until_us - now_us)).unwrap())
            })
            .filter(|_| cost <= COUNT);
        Told {
            allowed,
            limit: COUNT,
            remaining: COUNT - sum,
            retry_after_ms: if allowed { None } else { Some(retry_after_ms.unwrap_or(-2)) },
            reset_after_ms: by_end.last().map_or(0, |lease| ms_up(lease.until_us - now_us)),
        }
    }

    fn find(&mut self, now_us: u64, text: &str) -> Option<usize> {
        self.leases.retain(|lease| now_us < lease.until_us);
        self.leases.iter().position(|lease| lease.text == text)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn rules() -> Vec<RuleSpec> {
    vec![rule("exports", &["concurrency 5 ttl=10s"])]
}

fn agrees_with_the_model(clock: &ManualClock, wire: &mut dyn Wire, steps: u32) {
    let mut random = Random(8);
    let mut keys: HashMap<String, Model> = HashMap::new();
    // All leases there ever were, with the key that they are of.
    let mut known: Vec<(String, String)> = Vec::new();
    let (mut denied, mut renewed, mut gone) = (0, 0, 0);
    for step in 0..steps {
        clock.advance(Duration::from_micros(random.below(3) * random.below(600_000)));
        let now_us = clock.now().as_micros();
        let key = format!("key-{}", random.below(3));
        let model = keys.entry(key.clone()).or_default();
        let cost = random.below(10).saturating_sub(2).min(COUNT + 1);
        // Mostly one of the newest, of which some are live; of its own key, or of another.
        let lease = known.iter().rev().nth(usize::try_from(random.below(6)).unwrap()).cloned();
        match (random.below(20), lease) {
            (0..9, _) => {
                let expected = model.told(now_us, cost);
                let (told, lease) = wire.acquire(&key, cost);
                denied += u32::from(!told.allowed);
                if let Some(text) = &lease {
                    model.leases.push(Held { text: text.clone(), cost, until_us: now_us + TTL_US });
                    known.push((key.clone(), text.clone()));
                }
                assert_eq!(lease.is_some(), expected.allowed && cost > 0, "step {step}: {told:?}");
                let standing = if lease.is_some() { model.told(now_us, 0) } else { expected };
                assert_eq!(told, standing, "step {step}: acquire {key} {cost}");
            }
            (9..12, _) => {
                assert_eq!(wire.peek(&key, cost), model.told(now_us, cost), "step {step}: peek {key} {cost}");
            }
            (12..15, Some((of, text))) => {
                let key = if random.below(8) == 0 { key } else { of };
                let model = keys.entry(key.clone()).or_default();
                let place = model.find(now_us, &text);
                assert_eq!(wire.renew(&key, &text), place.is_some(), "step {step}: renew {key}");
                if let Some(place) = place {
                    model.leases[place].until_us = now_us + TTL_US;
                    renewed += 1;
                } else {
                    gone += 1;
                }
            }
            (15..19, Some((of, text))) => {
                let key = if random.below(8) == 0 { key } else { of };
                let model = keys.entry(key.clone()).or_default();
                let place = model.find(now_us, &text);
                assert_eq!(wire.release(&key, &text), place.is_some(), "step {step}: release {key}");
                if let Some(place) = place {
                    model.leases.remove(place);
                }
            }
            (19, _) if random.below(4) == 0 => {
                wire.reset(&key);
                model.leases.clear();
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

    fn told(reply: &str, items: &str) -> (Told, Option<String>) {
        let fields: Vec<&str> =
            reply.strip_prefix(items).unwrap_or_else(|| panic!("{reply}")).split('|').collect();
        let number = |place: usize| fields[place][1..].parse::<i64>().unwrap();
        let whole = |place: usize| u64::try_from(number(place)).unwrap();
        let told = Told {
            allowed: number(0) == 1,
            limit: whole(1),
            remaining: whole(2),
            retry_after_ms: Some(number(3)).filter(|wait| *wait != -1),
            reset_after_ms: whole(4),
        };
        assert_eq!(number(5), 0, "there is no delay: {reply}");
        // Who denied it is nil, or a length and a text; so is the lease, which a peek does not have.
        let place = if fields[6] == "$-1" { 7 } else { 8 };
        let has_lease = fields.get(place).is_some_and(|length| !["", "$-1"].contains(length));
        let lease = has_lease.then(|| fields[place + 1].to_owned());
        (told, lease)
    }
}

impl Wire for OverResp {
    fn acquire(&mut self, key: &str, cost: u64) -> (Told, Option<String>) {
        let reply = self.ask(&["RL.ACQUIRE", "exports", key, "COST", &cost.to_string()]);
        OverResp::told(&reply, "*8|")
    }

    fn peek(&mut self, key: &str, cost: u64) -> Told {
        OverResp::told(&self.ask(&["RL.PEEK", "exports", key, "COST", &cost.to_string()]), "*7|").0
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

    fn told(body: &Value) -> Told {
        let number = |field: &str| body[field].as_u64().unwrap_or_else(|| panic!("{field} of {body}"));
        let allowed = body["allowed"].as_bool().unwrap();
        let wait = body["retry_after_ms"].as_i64().unwrap_or(-2);
        Told {
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
    fn acquire(&mut self, key: &str, cost: u64) -> (Told, Option<String>) {
        let body = self.ask("/v1/acquire", &json!({"rule": "exports", "key": key, "cost": cost}));
        (OverHttp::told(&body), body["lease"].as_str().map(str::to_owned))
    }

    fn peek(&mut self, key: &str, cost: u64) -> Told {
        OverHttp::told(&self.ask("/v1/peek", &json!({"rule": "exports", "key": key, "cost": cost})))
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
fn leases_over_resp_are_those_of_the_model() {
    let clock = ManualClock::default();
    let place = Place::start_at(Config { rules: rules(), ..config() }, &clock);
    agrees_with_the_model(&clock, &mut OverResp(place.client()), 20_000);
}

#[test]
fn leases_over_http_are_those_of_the_model() {
    let serving = Serving::start(Config { rules: rules(), ..config() });
    agrees_with_the_model(&serving.clock, &mut OverHttp(serving.connect()), 5_000);
}

#[test]
fn leases_over_resp_are_those_of_the_model_in_redis() {
    let (clock, redis) = (ManualClock::default(), Redis::start());
    let place = redis.place_at(Config { rules: rules(), ..config() }, &clock);
    agrees_with_the_model(&clock, &mut OverResp(place.client()), 5_000);
}

#[test]
fn leases_over_http_are_those_of_the_model_in_redis() {
    let redis = Redis::start();
    let serving = redis.serving(Config { rules: rules(), ..config() });
    agrees_with_the_model(&serving.clock, &mut OverHttp(serving.connect()), 2_000);
}
