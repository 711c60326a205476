//! Calls on several keys, and receipts over them, agree with the model.

use crate::in_redis::Connected;
use redis_testkit::{Options, Server};
use sluicegate::backend::BackendError;
use sluicegate::{Decision, Limit, Receipt, ReserveOptions, Span, Time, Usage, VerbError};
use sluicegate_conformance::{KeyCall, KeysSubject, NotDone, Report, Reserved, Wait, random_keys};
use sluicegate_core::verbs::Unsupported;
use sluicegate_redis::{
    RedisCall, RedisLimiter, StoredReceipt, cancel_all, check_all_at, extend_all, reserve_all_at, settle_all,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys in a store, each under a limiter of its own scope; those with the same limits share one.
struct RedisKeys {
    connected: Connected,
    limiters: Vec<Option<RedisLimiter>>,
}

impl RedisKeys {
    fn new(connected: &Connected, limits: &[Vec<Limit>], start: Time) -> RedisKeys {
        static CASES: AtomicU64 = AtomicU64::new(0);
        let case = CASES.fetch_add(1, Ordering::Relaxed);
        let limiter = |limits_of_key: &Vec<Limit>| {
            let first = limits.iter().position(|other| other == limits_of_key).unwrap();
            let builder = RedisLimiter::builder(limits_of_key.as_slice());
            let builder = builder.in_store(&connected.store, &format!("keys{case}-{first}"));
            (!limits_of_key.is_empty()).then(|| builder.start(start).build().unwrap())
        };
        RedisKeys { connected: connected.clone(), limiters: limits.iter().map(limiter).collect() }
    }

    fn run<T>(&self, call: impl Future<Output = T>) -> T {
        self.connected.runtime.block_on(call)
    }

    fn limiter(&self, key: usize) -> &RedisLimiter {
        self.limiters[key].as_ref().unwrap()
    }

    fn call(&self, KeyCall { key, cost }: KeyCall) -> RedisCall<'_> {
        match &self.limiters[key] {
            Some(limiter) => limiter.call(name(key), cost),
            None => RedisCall::unlimited(cost),
        }
    }

    fn calls(&self, calls: &[KeyCall]) -> Vec<RedisCall<'_>> {
        calls.iter().map(|call| self.call(*call)).collect()
    }

    /// The calls of a receipt with these numbers, as a process makes them that has only its text.
    fn calls_of(&self, receipt: &Receipt, numbers: &[u64], now: Time) -> Vec<RedisCall<'_>> {
        let stored = StoredReceipt::read(&receipt.to_string().parse().unwrap()).unwrap();
        let keys: Vec<Option<usize>> = stored.calls().map(|call| Some(index(call?.1))).collect();
        let numbers = if let [for_each] = numbers { vec![*for_each; keys.len()] } else { numbers.to_vec() };
        let call = |(number, cost): (usize, &u64)| match keys.get(number) {
            Some(Some(key)) => self.limiter(*key).call(name(*key), *cost).at(now),
            _ => RedisCall::unlimited(*cost),
        };
        numbers.iter().enumerate().map(call).collect()
    }
}

fn name(key: usize) -> String {
    format!("key{key}")
}

fn index(key: &[u8]) -> usize {
    std::str::from_utf8(key).unwrap().strip_prefix("key").unwrap().parse().unwrap()
}

fn or_rejected<T>(result: Result<T, BackendError>) -> Result<T, NotDone> {
    match result {
        Err(BackendError::Verb(VerbError::NotOpen)) => Err(NotDone::NotOpen),
        Err(BackendError::Verb(VerbError::WrongCount { .. })) => Err(NotDone::WrongCount),
        result => Ok(result.unwrap()),
    }
}

fn supported<T>(result: Result<T, BackendError>) -> Result<T, Unsupported> {
    match result {
        Err(BackendError::Verb(VerbError::Unsupported(error))) => Err(error),
        result => Ok(result.unwrap()),
    }
}

impl KeysSubject for RedisKeys {
    type Receipt = Receipt;

    fn check(&mut self, now: Time, KeyCall { key, cost }: KeyCall) -> Decision {
        self.run(self.limiter(key).check_at(name(key), cost, now)).unwrap().decision()
    }

    fn peek(&mut self, now: Time, KeyCall { key, cost }: KeyCall) -> Decision {
        self.run(self.limiter(key).peek_at(name(key), cost, now)).unwrap().decision()
    }

    fn refund(&mut self, now: Time, KeyCall { key, cost }: KeyCall) -> Result<Decision, Unsupported> {
        let refunded = supported(self.run(self.limiter(key).refund_at(name(key), cost, now)));
        refunded.map(|answer| answer.decision())
    }

    fn usage(&mut self, now: Time, key: usize) -> Vec<Usage> {
        let usage = self.run(self.limiter(key).usage_at(name(key), now)).unwrap();
        usage.into_iter().map(|(_, usage)| usage).collect()
    }

    fn reset(&mut self, key: usize) {
        self.run(self.limiter(key).reset(name(key))).unwrap();
    }

    fn check_all(&mut self, now: Time, calls: &[KeyCall]) -> Decision {
        self.run(check_all_at(&self.calls(calls), now)).unwrap().0.decision()
    }

    fn reserve(
        &mut self,
        now: Time,
        KeyCall { key, cost }: KeyCall,
        options: &ReserveOptions,
    ) -> Result<Reserved<Receipt>, Unsupported> {
        let reserved = self.run(self.limiter(key).reserve_at(name(key), cost, *options, now));
        let reserved = supported(reserved)?;
        let (decision, granted) = (reserved.decision(), reserved.granted());
        Ok(Reserved { decision, receipt: reserved.keep(), granted })
    }

    fn reserve_all(
        &mut self,
        now: Time,
        calls: &[KeyCall],
        options: &ReserveOptions,
    ) -> (Decision, Option<Receipt>) {
        let reserved = self.run(reserve_all_at(&self.calls(calls), *options, now)).unwrap();
        (reserved.decision(), reserved.keep())
    }

    fn extend(
        &mut self,
        now: Time,
        receipt: Receipt,
        costs: &[u64],
        ttl: Option<Span>,
    ) -> Result<Decision, NotDone> {
        let calls = self.calls_of(&receipt, costs, now);
        let extended = or_rejected(self.run(extend_all(&receipt, &calls, ttl.map(Into::into))));
        extended.map(|answer| answer.decision())
    }

    fn settle(&mut self, now: Time, receipt: Receipt, used: &[u64]) -> Result<bool, NotDone> {
        or_rejected(self.run(settle_all(&receipt, &self.calls_of(&receipt, used, now))))
    }

    fn cancel(&mut self, now: Time, receipt: Receipt) -> bool {
        self.run(cancel_all(&receipt, &self.calls_of(&receipt, &[0], now))).unwrap()
    }

    fn latest() -> Time {
        Connected::latest()
    }
}

fn agrees(url: &str, seed: u64, operations: u64, are_alike: bool) -> Report {
    let connected = Connected::to(url);
    let mut report = Report::default();
    let make = |limits: &[Vec<Limit>], start| RedisKeys::new(&connected, limits, start);
    random_keys(seed, operations, (true, are_alike), make, &mut report)
        .unwrap_or_else(|mismatch| panic!("{mismatch}"));
    report
}

#[test]
fn several_keys_agree_with_the_model() {
    let server = Server::start(&Options::redis());
    for are_alike in [false, true] {
        let report = agrees(&server.url(), 11, 6_000, are_alike);
        assert!(report.returned > 50 && report.indebted > 20, "{report:?}");
    }
}

#[test]
fn several_keys_agree_with_the_model_on_valkey() {
    let Some(options) = Options::valkey() else { return };
    agrees(&Server::start(&options).url(), 12, 2_000, false);
}

/// `cargo test --release -p sluicegate-redis --test it -- --ignored many_calls_on_several` takes
/// minutes.
#[test]
#[ignore = "takes minutes; see its comment"]
fn many_calls_on_several_keys_agree_with_the_model() {
    let server = Server::start(&Options::redis());
    for are_alike in [false, true] {
        let report = agrees(&server.url(), 13, 500_000, are_alike);
        assert!(report.returned > 4_000 && report.indebted > 1_000, "{report:?}");
    }
}
