//! HTTP matches the model, in milliseconds rounded up.

use crate::http_client::{Raw, Serving, posted};
use crate::redis_store::{InRedis, Redis};
use crate::running;
use serde_json::Value;
use sluicegate::Limit;
use sluicegate::clock::ManualClock;
use sluicegate_conformance::{Fields, Report, Subject, random_traces, vectors};
use sluicegate_core::{RetryAfter, Span, Time};
use sluicegate_server::engine::RuleSpec;
use std::cell::RefCell;
use std::rc::Rc;

/// Random decisions per algorithm: enough to test the translation. The library is tested with more.
const DECISIONS: u64 = 500;
const MILLISECOND: u64 = 1_000;

/// A rule of a running server, over a connection that all cases share.
struct OverHttp {
    rule: String,
    clock: ManualClock,
    connection: Rc<RefCell<Raw>>,
}

impl Subject for OverHttp {
    fn check(&mut self, at: Time, key: &[u8], cost: u64) -> Fields {
        self.clock.set(at);
        let key = std::str::from_utf8(key).unwrap();
        let body = format!(r#"{{"rule":"{}","key":"{key}","cost":{cost}}}"#, self.rule);
        let mut connection = self.connection.borrow_mut();
        connection.send(posted("/v1/check", &body));
        let (status, body) = connection.answer();
        assert_eq!(status, 200, "{body}");
        read(&serde_json::from_str(&body).unwrap())
    }

    fn tick(&self) -> u64 {
        MILLISECOND
    }
}

/// The body of a decision.
fn read(body: &Value) -> Fields {
    let number = |field: &str| body[field].as_u64().unwrap_or_else(|| panic!("{field} of {body}"));
    let allowed = body["allowed"].as_bool().unwrap();
    let retry_after = match body["retry_after_ms"].as_u64() {
        Some(wait) => Some(RetryAfter::After(Span::from_micros(wait * MILLISECOND))),
        None => (!allowed).then_some(RetryAfter::Never),
    };
    Fields {
        allowed,
        limit: number("limit"),
        remaining: number("remaining"),
        retry_after,
        reset_after: number("reset_after_ms") * MILLISECOND,
        delay: number("delay_ms") * MILLISECOND,
    }
}

#[test]
fn http_matches_the_model() {
    gives_the_answers_of_the_model(&Serving::with_rules(&[]), |subject| subject);
}

#[test]
fn http_in_redis_matches_the_model() {
    let redis = Redis::start();
    gives_the_answers_of_the_model(&redis.serving(running::config()), InRedis);
}

fn gives_the_answers_of_the_model<S: Subject>(serving: &Serving, subject: impl Fn(OverHttp) -> S) {
    let connection = Rc::new(RefCell::new(serving.connect()));
    let mut cases = 0;
    let mut make = |limits: &[Limit], start: Time| {
        cases += 1;
        let rule = format!("case-{cases}");
        serving.clock.set(start);
        let spec = RuleSpec { name: rule.clone(), limits: limits.to_vec(), ..running::rule("", &[]) };
        serving.server().service().engine.load(vec![spec]).unwrap();
        subject(OverHttp { rule, clock: serving.clock.clone(), connection: Rc::clone(&connection) })
    };
    let mut report = vectors::run(&mut make).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    for algorithm in Limit::CHECKS.into_iter().map(Some).chain([None]) {
        random_traces(algorithm, 3, DECISIONS, &mut make, &mut report)
            .unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
    let Report { cases, checks, denied, .. } = report;
    assert!(cases > 200 && checks > 5_000 && denied > 1_000, "{report:?}");
}
