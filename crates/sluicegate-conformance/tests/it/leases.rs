//! Leases in the core and the library compared with the model: every verb in any order, every
//! field, time forward and back.

use fastrand::Rng;
use sluicegate::clock::ManualClock;
use sluicegate::semaphore::{LeaseId, Semaphore};
use sluicegate::{Limit, RetryAfter};
use sluicegate_conformance::random::number;
use sluicegate_core::concurrency::{Concurrency, LeaseHandle, Leases};
use sluicegate_core::{Decision, Span, Time};
use sluicegate_model as model;

/// A key in all three.
struct Key {
    limit: Limit,
    model: model::Leases,
    core: Leases<u32>,
    library: Semaphore,
    /// Every lease that was ever granted.
    given: Vec<(model::LeaseNumber, LeaseHandle, LeaseId)>,
}

#[derive(Default, Debug)]
struct Seen {
    denied: u64,
    never: u64,
    expired: u64,
    renewed: u64,
    released: u64,
    unknown: u64,
}

fn limit(rng: &mut Rng) -> Limit {
    let count = if rng.u8(..10) == 0 { number(rng, 1, 200) } else { rng.u64(1..=6) };
    let ttl = match rng.u8(..5) {
        0 => String::new(),
        1 => format!(" ttl={}us", number(rng, 1, 1_000_000_000)),
        _ => format!(" ttl={}us", rng.u64(1..=50)),
    };
    format!("concurrency {count}{ttl}").parse().unwrap()
}

impl Key {
    fn new(rng: &mut Rng) -> Key {
        let limit = limit(rng);
        let library = Semaphore::builder(&limit).clock(ManualClock::default()).build().unwrap();
        Key { limit, model: model::Leases::default(), core: Leases::default(), library, given: Vec::new() }
    }

    fn rules(&self) -> (model::Concurrency, Concurrency) {
        let core = self.limit.as_concurrency().unwrap();
        let ttl = core.ttl().map(Span::as_micros);
        (model::Concurrency { count: core.count(), ttl }, core)
    }

    fn step(&mut self, rng: &mut Rng, now: Time, seen: &mut Seen) {
        let (rule, core) = self.rules();
        let at = now.as_micros();
        let cost = match rng.u8(..10) {
            0 => 0,
            1 => core.count().saturating_add(rng.u64(..3)),
            2 => rng.u64(..=core.count()),
            _ => rng.u64(1..=core.count().min(3)),
        };
        match rng.u8(..20) {
            0..9 => {
                let (expected, number) = self.model.acquire(rule, at, cost);
                let (decision, held) = core.acquire(&mut self.core, now, cost, 0);
                let grant = self.library.try_acquire_at("k", cost, now);
                self.same(&expected, decision, "core");
                self.same(&expected, grant.decision(), "library");
                assert_eq!(grant.allowed(), expected.allowed);
                let lease = grant.lease();
                assert_eq!((held.is_some(), lease.is_some()), (number.is_some(), number.is_some()));
                if let (Some(number), Some(held), Some(lease)) = (number, held, lease) {
                    assert_eq!(lease.until(), held.until());
                    self.given.push((number, held, lease.keep()));
                }
                seen.denied += u64::from(!decision.allowed());
                seen.never += u64::from(decision.retry_after() == Some(RetryAfter::Never));
                let unknown = RetryAfter::After(sluicegate_core::concurrency::UNKNOWN);
                seen.unknown += u64::from(decision.retry_after() == Some(unknown));
            }
            9..12 => {
                let expected = self.model.peek(rule, at, cost);
                let decision = core.peek(&mut self.core, now, cost);
                self.same(&expected, decision, "core");
                self.same(&expected, self.library.peek_at("k", cost, now), "library");
            }
            12..15 if !self.given.is_empty() => {
                let place = self.pick(rng);
                let (number, held, id) = &mut self.given[place];
                let expected = self.model.renew(rule, at, *number);
                let renewed = core.renew(&mut self.core, now, *held);
                assert_eq!(renewed.is_some(), expected);
                assert_eq!(self.library.renew_at("k", id, now), expected);
                *held = renewed.unwrap_or(*held);
                seen.renewed += u64::from(expected);
                seen.expired += u64::from(!expected);
            }
            15..18 if !self.given.is_empty() => {
                let place = self.pick(rng);
                let (number, held, id) = &self.given[place];
                let expected = self.model.release(at, *number);
                // Like the library, expired leases are removed first.
                let _ = core.peek(&mut self.core, now, 0);
                assert_eq!(self.core.release(now, *held), expected);
                assert_eq!(self.library.release_at("k", id, now), expected);
                seen.released += u64::from(expected);
            }
            18 if rng.u8(..4) == 0 => {
                self.model.reset();
                self.core.reset().for_each(drop);
                self.library.reset("k");
            }
            19 if rng.bool() => {
                self.limit = limit(rng);
                self.library.change(&self.limit).unwrap();
            }
            _ => {}
        }
    }

    /// Picks recent leases more often than old ones.
    fn pick(&self, rng: &mut Rng) -> usize {
        let of_the_last = if rng.u8(..4) == 0 { 50 } else { 8 };
        self.given.len() - 1 - rng.usize(..self.given.len().min(of_the_last))
    }

    fn same(&self, expected: &model::Decision, decision: Decision, who: &str) {
        let retry_after = decision.retry_after().map(|retry_after| match retry_after {
            RetryAfter::After(wait) => model::RetryAfter::After(wait.as_micros()),
            RetryAfter::Never => model::RetryAfter::Never,
        });
        let answered = model::Decision {
            allowed: decision.allowed(),
            limit: decision.limit(),
            remaining: decision.remaining(),
            retry_after,
            reset_after: decision.reset_after().as_micros(),
            delay: decision.delay().as_micros(),
            denied_by: decision.denied_by().map(|place| place as usize),
        };
        assert_eq!(answered, *expected, "the {who} under {}", self.limit);
    }
}

#[test]
fn every_verb_in_any_order_agrees_with_the_model() {
    let mut seen = Seen::default();
    for seed in 0..600 {
        let mut rng = Rng::with_seed(seed);
        let (mut key, mut now) = (Key::new(&mut rng), 1_700_000_000_000_000_u64);
        for _ in 0..150 {
            key.step(&mut rng, Time::from_micros(now).unwrap(), &mut seen);
            now = match rng.u8(..12) {
                0 => now - rng.u64(..60),
                1 => now + number(&mut rng, 0, 1_000_000_000),
                2..7 => now,
                _ => now + rng.u64(..20),
            };
        }
    }
    let Seen { denied, never, expired, renewed, released, unknown } = seen;
    assert!(denied > 5_000 && never > 500 && unknown > 500, "{seen:?}");
    assert!(expired > 1_000 && renewed > 2_000 && released > 2_000, "{seen:?}");
}

/// Many keys: no key affects another, even while expired leases of idle keys are removed.
#[test]
fn keys_do_not_affect_each_other() {
    let mut rng = Rng::with_seed(5);
    let limit: Limit = "concurrency 3 ttl=200us".parse().unwrap();
    let rule = model::Concurrency { count: 3, ttl: Some(200) };
    let library = Semaphore::builder(&limit).clock(ManualClock::default()).build().unwrap();
    let mut models = vec![model::Leases::default(); 300];
    let (mut now, mut denied) = (1_700_000_000_000_000_u64, 0_u32);
    for _ in 0..30_000 {
        now += rng.u64(..3);
        let (key, cost) = (if rng.bool() { rng.usize(..300) } else { rng.usize(..10) }, rng.u64(1..=3));
        let (expected, _) = models[key].acquire(rule, now, cost);
        let grant = library.try_acquire_at(key, cost, Time::from_micros(now).unwrap());
        let decision = grant.decision();
        let reported = (decision.allowed(), decision.remaining(), decision.reset_after().as_micros());
        assert_eq!(reported, (expected.allowed, expected.remaining, expected.reset_after));
        if let Some(lease) = grant.lease() {
            let _ = lease.keep();
        }
        denied += u32::from(!decision.allowed());
    }
    assert!(denied > 3_000, "{denied}");
    assert!(library.stats().leases < 1_000, "{:?}", library.stats());
}
