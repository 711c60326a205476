//! The conformance suite over RESP: all vectors, and random traces per algorithm and for lists.

use crate::redis_store::{InRedis, Redis};
use crate::resp_client::{Client, TestServer, array};
use crate::running::{config, rule};
use sluicegate::Limit;
use sluicegate::clock::ManualClock;
use sluicegate_conformance::{Fields, Subject, suite};
use sluicegate_core::{RetryAfter, Span, Time};
use sluicegate_server::engine::RuleSpec;
use std::cell::{Cell, RefCell};

/// One rule of a running server.
struct OverResp<'a> {
    clock: &'a ManualClock,
    client: &'a RefCell<Client>,
    rule: String,
}

impl Subject for OverResp<'_> {
    fn check(&mut self, at: Time, key: &[u8], cost: u64) -> Fields {
        self.clock.set(at);
        let mut client = self.client.borrow_mut();
        client.send(array(&[b"RL.CHECK", self.rule.as_bytes(), key, b"COST", cost.to_string().as_bytes()]));
        let reply = client.shown();
        let mut fields = reply.strip_prefix("*7|").unwrap_or_else(|| panic!("{reply}")).split('|');
        let mut number = || fields.next().unwrap()[1..].parse::<i64>().unwrap();
        let whole = |number: i64| u64::try_from(number).unwrap();
        Fields {
            allowed: number() == 1,
            limit: whole(number()),
            remaining: whole(number()),
            retry_after: match number() {
                -1 => None,
                -2 => Some(RetryAfter::Never),
                wait => Some(RetryAfter::After(Span::from_micros(whole(wait) * 1_000))),
            },
            reset_after: whole(number()) * 1_000,
            delay: whole(number()) * 1_000,
        }
    }

    fn tick(&self) -> u64 {
        1_000
    }
}

fn passes_the_suite<'a, S: Subject>(
    server: &'a TestServer,
    clock: &'a ManualClock,
    client: &'a RefCell<Client>,
    subject: impl Fn(OverResp<'a>) -> S,
) {
    let cases = Cell::new(0);
    let make = |limits: &[Limit], start: Time| {
        cases.set(cases.get() + 1);
        let name = format!("case-{}", cases.get());
        clock.set(start);
        let spec = RuleSpec { name: name.clone(), limits: limits.to_vec(), ..rule("", &[]) };
        server.engine.load(vec![spec]).unwrap();
        subject(OverResp { clock, client, rule: name })
    };
    let report = suite(make).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(report.checks > 30_000 && report.denied > 10_000, "{report:?}");
}

#[test]
fn resp_passes_the_suite() {
    let clock = ManualClock::default();
    let server = TestServer::start_at(config(), &clock);
    passes_the_suite(&server, &clock, &RefCell::new(server.client()), |subject| subject);
}

#[test]
fn resp_passes_the_suite_with_keys_in_redis() {
    let (clock, redis) = (ManualClock::default(), Redis::start());
    let server = redis.server_at(config(), &clock);
    passes_the_suite(&server, &clock, &RefCell::new(server.client()), InRedis);
}
