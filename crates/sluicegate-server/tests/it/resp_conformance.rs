//! The server behind RESP as a subject: all vectors, and random traces for each algorithm and for lists.

use crate::resp_client::{Client, Place, array};
use crate::running::config;
use sluicegate::core::{RetryAfter, Span, Time};
use sluicegate::{Limit, ManualClock};
use sluicegate_conformance::{Answer, Subject, suite};
use sluicegate_server::engine::{OnStoreFailure, RuleSpec};
use std::cell::{Cell, RefCell};

/// One rule of a running server.
struct OverResp<'a> {
    clock: &'a ManualClock,
    client: &'a RefCell<Client>,
    rule: String,
}

impl Subject for OverResp<'_> {
    fn check(&mut self, at: Time, key: &[u8], cost: u32) -> Answer {
        self.clock.set(at);
        let mut client = self.client.borrow_mut();
        client.send(array(&[b"RL.CHECK", self.rule.as_bytes(), key, b"COST", cost.to_string().as_bytes()]));
        let reply = client.shown();
        let mut fields = reply.strip_prefix("*7|").unwrap_or_else(|| panic!("{reply}")).split('|');
        let mut number = || fields.next().unwrap()[1..].parse::<i64>().unwrap();
        let whole = |number: i64| u64::try_from(number).unwrap();
        Answer {
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

#[test]
fn resp_passes_the_suite() {
    let clock = ManualClock::default();
    let place = Place::start_at(config(), &clock);
    let client = RefCell::new(place.client());
    let cases = Cell::new(0);
    let make = |limits: &[Limit], start: Time| {
        cases.set(cases.get() + 1);
        let rule = format!("case-{}", cases.get());
        clock.set(start);
        let spec = RuleSpec {
            name: rule.clone(),
            limits: limits.to_vec(),
            shadow: false,
            on_store_failure: OnStoreFailure::Error,
            keys: Vec::new(),
        };
        place.engine.load(vec![spec]).unwrap();
        OverResp { clock: &clock, client: &client, rule }
    };
    let report = suite(make).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(report.checks > 30_000 && report.denied > 10_000, "{report:?}");
}
