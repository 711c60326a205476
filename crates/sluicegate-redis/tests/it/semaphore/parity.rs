//! The core's decisions, in every field; and the model's, which shares no code with either.

use super::connect;
use fastrand::Rng;
use redis_testkit::{Cluster, Options, Server};
use sluicegate::backend::LeaseBackend;
use sluicegate::semaphore::LeaseId;
use sluicegate::{Decision, Limit, RetryAfter, Span, Time, Usage};
use sluicegate_core::concurrency::{Concurrency, LeaseHandle, Leases, SCAN_MAX};
use sluicegate_model as model;
use sluicegate_redis::{RedisLease, RedisSemaphore, RedisStore};

const START: u64 = 1_780_000_000_000_000;

/// A key in the store, in the core, and in the model if that is not too slow.
struct ParityKey {
    semaphore: RedisSemaphore,
    rule: Concurrency,
    leases: Leases<()>,
    model: Option<model::Leases>,
    /// All leases ever granted, including those that are gone.
    granted: Vec<GrantedLease>,
}

#[derive(Clone)]
struct GrantedLease {
    id: LeaseId,
    held: LeaseHandle,
    number: Option<model::LeaseNumber>,
}

/// A decision as the model's type.
fn model_decision(decision: Decision) -> model::Decision {
    model::Decision {
        allowed: decision.allowed(),
        limit: decision.limit(),
        remaining: decision.remaining(),
        retry_after: decision.retry_after().map(|retry_after| match retry_after {
            RetryAfter::After(wait) => model::RetryAfter::After(wait.as_micros()),
            RetryAfter::Never => model::RetryAfter::Never,
        }),
        reset_after: decision.reset_after().as_micros(),
        delay: decision.delay().as_micros(),
        denied_by: decision.denied_by().map(|index| usize::try_from(index).unwrap()),
    }
}

impl ParityKey {
    fn new(store: &RedisStore, limit: &str, scope: &str) -> ParityKey {
        let rule = limit.parse::<Limit>().unwrap().as_concurrency().unwrap();
        let semaphore = RedisSemaphore::builder(limit).in_store(store, scope).build().unwrap();
        ParityKey { semaphore, rule, leases: Leases::default(), model: None, granted: Vec::new() }
    }

    fn backend(&self) -> &dyn LeaseBackend {
        &self.semaphore
    }

    fn model_rule(&self) -> model::Concurrency {
        model::Concurrency { count: self.rule.count(), ttl: self.rule.ttl().map(Span::as_micros) }
    }

    async fn acquire(&mut self, key: &str, cost: u64, now: Time) -> bool {
        let grant = self.semaphore.try_acquire_at(key, cost, now).await.unwrap();
        let (decision, held) = self.rule.acquire(&mut self.leases, now, cost, ());
        assert_eq!(
            (grant.decision(), grant.allowed()),
            (decision, decision.allowed()),
            "cost {cost} at {now:?}"
        );
        let rule = self.model_rule();
        let by_model = self.model.as_mut().map(|model| model.acquire(rule, now.as_micros(), cost));
        let number = by_model.and_then(|(answer, number)| {
            assert_eq!(model_decision(grant.decision()), answer, "cost {cost} at {now:?}");
            number
        });
        let lease = grant.lease();
        assert_eq!(lease.as_ref().map(RedisLease::until), held.and_then(|held| held.until()));
        self.granted.extend(lease.zip(held).map(|(lease, held)| GrantedLease {
            id: lease.keep(),
            held,
            number,
        }));
        decision.allowed()
    }

    async fn peek(&mut self, key: &str, cost: u64, now: Time) {
        let answer = self.backend().peek(&key, cost, Some(now)).await.unwrap();
        assert_eq!(answer.decision(), self.rule.peek(&mut self.leases, now, cost), "cost {cost} at {now:?}");
        let (_, usage) = self.backend().usage(&key, Some(now)).await.unwrap();
        assert_eq!(usage, self.rule.usage(&mut self.leases, now), "at {now:?}");
        let rule = self.model_rule();
        if let Some(model) = &mut self.model {
            let expected = model.peek(rule, now.as_micros(), cost);
            assert_eq!(model_decision(answer.decision()), expected, "cost {cost} at {now:?}");
            let model::Usage { limit, used, remaining, reset_after, .. } = model.usage(rule, now.as_micros());
            let reset_after = Span::from_micros(reset_after);
            assert_eq!(usage, Usage::new(limit, used, remaining, reset_after), "at {now:?}");
        }
    }

    async fn renew(&mut self, key: &str, index: usize, now: Time) -> bool {
        let (rule, granted) = (self.model_rule(), &mut self.granted[index]);
        let renewed = self.rule.renew(&mut self.leases, now, granted.held);
        let backend: &dyn LeaseBackend = &self.semaphore;
        assert_eq!(backend.renew(&key, &granted.id, Some(now)).await.unwrap(), renewed.is_some());
        if let (Some(model), Some(number)) = (&mut self.model, granted.number) {
            assert_eq!(model.renew(rule, now.as_micros(), number), renewed.is_some());
        }
        granted.held = renewed.unwrap_or(granted.held);
        renewed.is_some()
    }

    async fn release(&mut self, key: &str, index: usize, now: Time) -> bool {
        if self.model.is_some() {
            // In the model a release removes other expired leases; in the store it does not read
            // them.
            self.peek(key, 0, now).await;
        }
        let GrantedLease { id, held, number } = &self.granted[index];
        let released = self.leases.release(now, *held);
        assert_eq!(self.backend().release(&key, id, Some(now)).await.unwrap(), released);
        if let (Some(model), Some(number)) = (&mut self.model, number) {
            assert_eq!(model.release(now.as_micros(), *number), released);
        }
        released
    }
}

/// The number of calls by kind.
#[derive(Default, Debug)]
struct Seen {
    granted: u32,
    denied: u32,
    renewed: u32,
    not_renewed: u32,
    released: u32,
    not_released: u32,
}

async fn trace(store: &RedisStore, seed: u64, calls: usize, tally: &mut Seen) {
    let mut random = Rng::with_seed(seed);
    let (scope, key) = (format!("trace{seed}"), format!("key {seed}"));
    let mut parity = ParityKey::new(store, "concurrency 7 ttl=10s", &scope);
    parity.model = random.bool().then(model::Leases::default);
    let heavy = random.bool();
    let mut now = START;
    for _ in 0..calls {
        // Now and then the clock steps back.
        now =
            if random.u8(..50) == 0 { now - random.u64(..5_000_000) } else { now + random.u64(..2_000_000) };
        let at = Time::from_micros(now).unwrap();
        let cost = if heavy { random.u64(..=8) } else { 1 };
        let any = |random: &mut Rng, parity: &ParityKey| {
            // Usually one of the last.
            let last = parity.granted.len().checked_sub(1)?;
            Some(last - random.usize(..=last.min(9)))
        };
        match random.u8(..20) {
            0..8 => {
                let granted = parity.acquire(&key, cost, at).await;
                *(if granted { &mut tally.granted } else { &mut tally.denied }) += 1;
            }
            8..11 => parity.peek(&key, cost, at).await,
            11..15 => match any(&mut random, &parity) {
                Some(index) if parity.renew(&key, index, at).await => tally.renewed += 1,
                Some(_) => tally.not_renewed += 1,
                None => {}
            },
            15..19 => match any(&mut random, &parity) {
                Some(index) if parity.release(&key, index, at).await => tally.released += 1,
                Some(_) => tally.not_released += 1,
                None => {}
            },
            _ if random.bool() => {
                // The same leases under another limit.
                let other = format!("concurrency {} ttl={}s", random.u32(1..9), random.u32(1..20));
                let ParityKey { semaphore, rule, .. } = ParityKey::new(store, &other, &scope);
                (parity.semaphore, parity.rule) = (semaphore, rule);
            }
            _ if random.u8(..4) == 0 => {
                parity.semaphore.reset(&key).await.unwrap();
                drop(parity.leases.reset());
                parity.model.iter_mut().for_each(model::Leases::reset);
            }
            _ => {}
        }
    }
}

async fn traces(store: &RedisStore, seeds: u64, calls: usize) {
    let mut seen = Seen::default();
    for seed in 0..seeds {
        trace(store, seed, calls, &mut seen).await;
    }
    let Seen { granted, denied, renewed, not_renewed, released, not_released } = seen;
    for times in [granted, denied, renewed, not_renewed, released, not_released] {
        assert!(times > 200, "{seen:?}");
    }
}

#[tokio::test]
async fn every_field_agrees_with_the_core_and_the_model() {
    for options in [Some(Options::redis()), Options::valkey()].into_iter().flatten() {
        let server = Server::start(&options);
        traces(&connect(&server.url()).await, 60, 250).await;
    }
}

#[tokio::test]
async fn every_field_agrees_on_a_cluster_too() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    traces(&connect(&cluster.url()).await, 40, 150).await;
}

#[tokio::test]
async fn of_very_many_leases_exactly_the_live_ones_count() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let most = SCAN_MAX as u64;
    let many = 4 * most + 1500;
    let at = |micros: u64| Time::from_micros(START + micros).unwrap();
    for heavy in [false, true] {
        let scope = format!("many {heavy}");
        let mut parity = ParityKey::new(&store, &format!("concurrency {} ttl=1h", 2 * many), &scope);
        for index in 0..many {
            let cost = if heavy && index % 3 == 0 { 3 } else { 1 };
            assert!(parity.acquire("user:42", cost, at(index)).await);
        }
        let hour = Span::from_micros(3_600_000_000).as_micros();
        let count = parity.rule.count();
        let free = parity.rule.peek(&mut parity.leases, at(many), 0).remaining();
        // What the leases that are scanned cost: a third of them cost 3.
        let scanned = if heavy { most + 2 * most.div_ceil(3) } else { most };
        for more in [0, 1, scanned / 2, scanned, scanned + 1, count - free - 1, count - free] {
            parity.peek("user:42", free + more, at(many)).await;
        }
        // More than are removed at once.
        for expired in [2500, 2501, 4000, many - 1, many] {
            parity.peek("user:42", count, at(hour + expired)).await;
        }
        assert_eq!(server.cli(&["EXISTS", &format!("sluice:1/{scope}:0c|{{user:42}}")]).trim(), "0");
        assert_eq!(server.cli(&["EXISTS", &format!("sluice:1/{scope}:0k|{{user:42}}")]).trim(), "0");
    }
}
