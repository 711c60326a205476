//! Leases in the engine: rules and exceptions, inline limits, reloads, and errors.

use crate::running::{Seen, at_once, rule};
use sluicegate::clock::ManualClock;
use sluicegate::{ReserveOptions, RetryAfter, Span};
use sluicegate_server::engine::{
    Engine, HeldLeases, KeySpec, LeaseStats, Leased, Reason, RequestError, RuleCache, RuleSpec, Settings,
    Target,
};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(30);

fn engine_with(settings: Settings, rules: Vec<RuleSpec>) -> (Engine, ManualClock) {
    let clock = ManualClock::default();
    let engine = Engine::new(Settings { max_keys: 100, ..settings }, Arc::new(clock.clone())).unwrap();
    engine.load(rules).unwrap();
    (engine, clock)
}

fn engine(rules: Vec<RuleSpec>) -> (Engine, ManualClock) {
    engine_with(Settings::default(), rules)
}

fn on<'a>(rule: &'a str, key: &'a str) -> Target<'a> {
    Target { rule, key: key.as_bytes() }
}

fn acquire(engine: &Engine, rule: &str, key: &str, cost: u64) -> (Seen, Option<String>) {
    let mut leased = at_once(engine.acquire(on(rule, key), cost, Span::ZERO, engine.now())).unwrap();
    let lease = leased.lease.take();
    let text = lease.as_ref().map(|lease| lease.text().to_owned());
    if let Some(lease) = lease {
        lease.delivered();
    }
    (leased.decided().into(), text)
}

/// Acquires a lease that must be granted.
fn lease(engine: &Engine, rule: &str, key: &str) -> String {
    acquire(engine, rule, key, 1).1.unwrap()
}

fn renew(engine: &Engine, rule: &str, key: &str, lease: &str) -> bool {
    at_once(engine.renew(on(rule, key), lease, engine.now())).unwrap()
}

fn release(engine: &Engine, rule: &str, key: &str, lease: &str) -> bool {
    at_once(engine.release(on(rule, key), lease, engine.now())).unwrap()
}

fn remaining(engine: &Engine, rule: &str, key: &str) -> u64 {
    at_once(engine.call(on(rule, key), 1).unwrap().peek(engine.now())).unwrap().remaining()
}

fn error<T>(answer: Result<T, RequestError>) -> String {
    answer.map(|_| ()).unwrap_err().to_string()
}

fn exports(limit: &str, keys: &[(&str, KeySpec)]) -> RuleSpec {
    let keys = keys.iter().map(|(key, says)| (key.as_bytes().to_vec(), says.clone())).collect();
    RuleSpec { keys, ..rule("exports", &[limit]) }
}

fn limits(text: &str) -> KeySpec {
    KeySpec::Limits(vec![text.parse().unwrap()])
}

#[test]
fn a_lease_is_acquired_renewed_released_and_expires() {
    let (engine, clock) = engine(vec![rule("exports", &["concurrency 2 ttl=30s"])]);
    let [first, second] = [lease(&engine, "exports", "acme"), lease(&engine, "exports", "acme")];
    assert_ne!(first, second);
    let (denied, none) = acquire(&engine, "exports", "acme", 1);
    assert_eq!((denied.allowed, denied.limit, denied.remaining, none), (false, 2, 0, None));
    assert_eq!(denied.retry_after, Some(RetryAfter::After(Span::from_micros(30_000_000))));
    assert_eq!(denied.denied_by.as_deref(), Some("concurrency 2 ttl=30s"));
    assert_eq!(denied.reason, Some(Reason::Limit));
    assert_eq!(acquire(&engine, "exports", "acme", 3).0.reason, Some(Reason::CostExceedsLimit));
    assert_eq!(remaining(&engine, "exports", "other"), 2, "another key");
    clock.advance(TTL / 2);
    assert!(renew(&engine, "exports", "acme", &first));
    clock.advance(TTL / 2);
    assert!(!renew(&engine, "exports", "acme", &second), "it has expired");
    assert!(!release(&engine, "exports", "acme", &second));
    assert!(!release(&engine, "exports", "other", &first), "it is acme's");
    assert!(release(&engine, "exports", "acme", &first) && !release(&engine, "exports", "acme", &first));
    assert_eq!(remaining(&engine, "exports", "acme"), 2);
}

#[test]
fn an_undelivered_lease_is_released() {
    let (engine, _) = engine(vec![rule("exports", &["concurrency 1 ttl=30s"])]);
    let leased = at_once(engine.acquire(on("exports", "acme"), 1, Span::ZERO, engine.now())).unwrap();
    assert_eq!(remaining(&engine, "exports", "acme"), 0);
    drop(leased);
    assert_eq!(remaining(&engine, "exports", "acme"), 1);
    let view = engine.rules().find("exports").unwrap().leases().unwrap();
    assert_eq!((view.acquired, view.released), (1, 1));
}

#[test]
fn charging_verbs_are_rejected_under_concurrency() {
    let (engine, _) = engine(vec![exports("concurrency 2 ttl=30s", &[("free", KeySpec::Unlimited)])]);
    let now = engine.now();
    let says =
        "a concurrency limit grants leases, which a check cannot release; use RL.ACQUIRE or POST /v1/acquire";
    for target in [on("exports", "acme"), on("exports", "free"), on("concurrency 2 ttl=1s", "acme")] {
        let call = || engine.call(target, 1).unwrap();
        for said in [
            error(engine.check(&mut RuleCache::default(), target, 1, None)),
            error(engine.check(&mut RuleCache::default(), target, 1, Some(Span::ZERO))),
            error(at_once(call().take(now))),
            error(at_once(call().reserve(&ReserveOptions::default(), now))),
            error(at_once(call().refund(now))),
            error(at_once(call().next_window(now))),
            error(at_once(engine.decide_all(&[call()], None, now))),
        ] {
            assert_eq!(said, says, "{target:?}");
        }
    }
    assert_eq!(remaining(&engine, "exports", "acme"), 2);
}

#[test]
fn leases_are_rejected_under_other_limits() {
    let reply = RuleSpec {
        keys: vec![(b"free".to_vec(), KeySpec::Unlimited)],
        ..rule("reply", &["sliding-log 5/60s"])
    };
    let (engine, _) = engine(vec![reply, rule("exports", &["concurrency 1 ttl=30s"])]);
    let text = lease(&engine, "exports", "acme");
    let now = engine.now();
    for target in [on("reply", "user:42"), on("reply", "free"), on("pacer 1/s", "user:42")] {
        for said in [
            error(at_once(engine.acquire(target, 1, Span::ZERO, now))),
            error(at_once(engine.renew(target, &text, now))),
            error(at_once(engine.release(target, &text, now))),
        ] {
            assert_eq!(said, "only a concurrency limit grants leases; use RL.CHECK or POST /v1/check");
        }
    }
}

#[test]
fn concurrency_needs_a_ttl_and_stands_alone() {
    let (engine, _) = engine(vec![]);
    let forever =
        "a client that crashes would hold its lease forever; add a ttl, as in \"concurrency 3 ttl=30s\"";
    assert_eq!(
        error(engine.load(vec![rule("exports", &["concurrency 3"])])),
        format!("rule exports: concurrency 3: {forever}")
    );
    assert_eq!(
        error(at_once(engine.acquire(on("concurrency 3", "acme"), 1, Span::ZERO, engine.now()))),
        format!("concurrency 3: {forever}")
    );
    assert_eq!(
        error(engine.load(vec![rule("exports", &["sliding-log 5/60s", "concurrency 3 ttl=1s"])])),
        "rule exports: concurrency 3 ttl=1s: concurrency grants leases and cannot be part of a list; make it a rule of its own"
    );
    assert_eq!(
        error(engine.load(vec![exports("concurrency 3 ttl=1s", &[("acme", limits("sliding-log 5/60s"))])])),
        "rule exports: exception sliding-log 5/min does not fit: the rule grants leases; use a concurrency limit, \"unlimited\" or \"blocked\""
    );
    assert_eq!(
        error(engine.load(vec![exports("sliding-log 5/60s", &[("acme", limits("concurrency 3 ttl=1s"))])])),
        "rule exports: exception concurrency 3 ttl=1s does not fit: the rule decides checks; use a limit other than concurrency, \"unlimited\" or \"blocked\""
    );
}

#[test]
fn exceptions_are_leases_unlimited_or_blocked() {
    let keys =
        [("big", limits("concurrency 3 ttl=10s")), ("free", KeySpec::Unlimited), ("bad", KeySpec::Blocked)];
    let (engine, _) = engine(vec![exports("concurrency 1 ttl=30s", &keys)]);
    let of = |key: &str| {
        let (verdict, lease) = acquire(&engine, "exports", key, 1);
        (verdict.allowed, verdict.limit, lease.is_some())
    };
    assert_eq!([of("acme"), of("acme")], [(true, 1, true), (false, 1, false)]);
    assert_eq!(
        [of("big"), of("big"), of("big"), of("big")],
        [(true, 3, true), (true, 3, true), (true, 3, true), (false, 3, false)]
    );
    assert_eq!(
        [of("free"), of("free")],
        [(true, 1_000_000_000_000, false), (true, 1_000_000_000_000, false)]
    );
    let (blocked, _) = acquire(&engine, "exports", "bad", 1);
    assert_eq!(
        (blocked.allowed, blocked.retry_after, blocked.reason),
        (false, Some(RetryAfter::Never), Some(Reason::Blocked))
    );
}

#[test]
fn a_shadow_rule_never_makes_a_call_wait() {
    let shadow = RuleSpec { shadow: true, ..rule("exports", &["concurrency 1 ttl=30s"]) };
    let (engine, _) = engine(vec![shadow]);
    assert!(acquire(&engine, "exports", "acme", 1).1.is_some());
    let minute = Span::from_micros(60_000_000);
    let leased = at_once(engine.acquire(on("exports", "acme"), 1, minute, engine.now())).unwrap();
    assert!(leased.decided().allowed() && leased.decided().denied() && leased.lease.is_none());
    let tally = engine.rules().find("exports").unwrap().tally();
    assert_eq!((tally.allowed, tally.denied, tally.shadow_denied), (1, 0, 1));
}

#[test]
fn inline_leases_belong_to_the_canonical_text() {
    let (engine, _) = engine(vec![rule("exports", &["concurrency 2 ttl=30s"])]);
    let text = lease(&engine, "concurrency 2 ttl=60s", "acme");
    assert_eq!(remaining(&engine, "concurrency 2 ttl=1min", "acme"), 1, "the same limit in other words");
    assert_eq!(remaining(&engine, "concurrency 2 ttl=30s", "acme"), 2, "another limit");
    assert_eq!(remaining(&engine, "exports", "acme"), 2, "a rule");
    assert!(
        !release(&engine, "exports", "acme", &text)
            && !release(&engine, "concurrency 2 ttl=30s", "acme", &text)
    );
    assert!(release(&engine, "concurrency 2 ttl=1min", "acme", &text));
    let closed = Settings { allow_inline: false, ..Settings::default() };
    let (engine, _) = engine_with(closed, vec![]);
    let said =
        error(at_once(engine.acquire(on("concurrency 2 ttl=30s", "acme"), 1, Span::ZERO, engine.now())));
    assert!(said.contains("allow_inline"), "{said}");
}

#[test]
fn leases_survive_many_inline_limits() {
    let (engine, _) = engine(vec![]);
    let held = lease(&engine, "concurrency 2 ttl=1h", "acme");
    for ttl in 1..=10_000 {
        let limit = format!("concurrency 1 ttl={ttl}ms");
        let text = lease(&engine, &limit, "acme");
        assert!(release(&engine, &limit, "acme", &text));
    }
    assert_eq!(remaining(&engine, "concurrency 2 ttl=1h", "acme"), 1);
    assert!(renew(&engine, "concurrency 2 ttl=1h", "acme", &held));
}

#[test]
fn a_changed_rule_keeps_held_leases() {
    let (engine, clock) = engine(vec![exports("concurrency 3 ttl=30s", &[])]);
    let held: Vec<String> = (0..3).map(|_| lease(&engine, "exports", "acme")).collect();
    engine.load(vec![exports("concurrency 1 ttl=10s", &[])]).unwrap();
    let (denied, _) = acquire(&engine, "exports", "acme", 1);
    assert_eq!((denied.allowed, denied.limit, denied.remaining), (false, 1, 0), "held leases stay");
    assert!(renew(&engine, "exports", "acme", &held[0]), "for ten seconds from now on");
    assert!(release(&engine, "exports", "acme", &held[1]) && release(&engine, "exports", "acme", &held[2]));
    assert_eq!(remaining(&engine, "exports", "acme"), 0);
    clock.advance(Duration::from_secs(10));
    assert_eq!(remaining(&engine, "exports", "acme"), 1);

    let held = lease(&engine, "exports", "acme");
    let exception = exports("concurrency 1 ttl=10s", &[("acme", limits("concurrency 2 ttl=10s"))]);
    engine.load(vec![exception]).unwrap();
    assert_eq!(remaining(&engine, "exports", "acme"), 1, "what it holds belongs to the rule and the key");
    engine.load(vec![exports("concurrency 1 ttl=10s", &[("acme", KeySpec::Blocked)])]).unwrap();
    assert!(renew(&engine, "exports", "acme", &held), "blocked, but it may finish");
    engine.load(vec![]).unwrap();
    engine.load(vec![exports("concurrency 1 ttl=10s", &[])]).unwrap();
    assert_eq!(remaining(&engine, "exports", "acme"), 0, "the rule is back, and so are its leases");
    assert!(release(&engine, "exports", "acme", &held));
}

#[test]
fn reset_deletes_the_leases_of_a_key() {
    let (engine, _) = engine(vec![rule("exports", &["concurrency 1 ttl=30s"])]);
    let [acme, other] = ["acme", "other"].map(|key| lease(&engine, "exports", key));
    at_once(engine.call(on("exports", "acme"), 0).unwrap().reset()).unwrap();
    assert_eq!(remaining(&engine, "exports", "acme"), 1);
    assert!(!renew(&engine, "exports", "acme", &acme) && renew(&engine, "exports", "other", &other));
}

#[test]
fn max_leases_bounds_all_leases() {
    let settings = Settings { max_leases: 3, ..Settings::default() };
    let (engine, clock) = engine_with(settings, vec![rule("exports", &["concurrency 2 ttl=30s"])]);
    let first = lease(&engine, "exports", "acme");
    lease(&engine, "exports", "other");
    lease(&engine, "concurrency 1 ttl=10s", "acme");
    let (denied, none) = acquire(&engine, "exports", "third", 1);
    assert_eq!((denied.allowed, denied.reason, none), (false, Some(Reason::NoRoom), None));
    assert!(matches!(denied.retry_after, Some(RetryAfter::After(_))), "{denied:?}");
    assert!(renew(&engine, "exports", "acme", &first), "renewing takes no more room");
    assert!(release(&engine, "exports", "acme", &first));
    assert!(acquire(&engine, "exports", "third", 1).0.allowed);
    clock.advance(TTL);
    assert!(acquire(&engine, "concurrency 9 ttl=10s", "fourth", 1).0.allowed, "expired leases make room");
}

#[test]
fn inline_limits_have_a_quarter_of_the_leases() {
    const INLINE: &str = "concurrency 1000000000 ttl=3650d";
    let settings = Settings { max_leases: 8, ..Settings::default() };
    let (engine, clock) = engine_with(settings, vec![rule("exports", &["concurrency 1 ttl=30s"])]);
    let held: Vec<String> = (0..2).map(|_| lease(&engine, INLINE, "acme")).collect();
    let no_room = |verdict: Seen| {
        assert_eq!((verdict.allowed, verdict.reason), (false, Some(Reason::NoRoom)), "{verdict:?}");
        assert!(matches!(verdict.retry_after, Some(RetryAfter::After(_))), "{verdict:?}");
    };
    for (limit, key) in [(INLINE, "acme"), (INLINE, "other"), ("concurrency 1 ttl=10s", "acme")] {
        let (verdict, none) = acquire(&engine, limit, key, 1);
        assert_eq!(none, None);
        no_room(verdict);
        let wait = Span::from_micros(60_000_000);
        no_room(at_once(engine.acquire(on(limit, key), 1, wait, engine.now())).unwrap().decided().into());
        assert!(acquire(&engine, limit, key, 0).0.allowed, "nothing needs no room");
    }
    assert_eq!(engine.inline_leases().in_memory, Some(HeldLeases { held: 2, expired: 0 }));
    (0..6).for_each(|key| drop(lease(&engine, "exports", &key.to_string())));
    assert_eq!(acquire(&engine, "exports", "7th", 1).0.reason, Some(Reason::NoRoom), "all of it is used");
    assert_eq!(engine.no_lease_room(), Some(7));

    // A released lease makes room, and a waiter needs room too.
    assert!(release(&engine, INLINE, "acme", &held[0]) && release(&engine, INLINE, "acme", &held[1]));
    let brief = "concurrency 1 ttl=10s";
    lease(&engine, brief, "acme");
    let mut waits = pin!(engine.acquire(on(brief, "acme"), 1, Span::from_micros(60_000_000), engine.now()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    no_room(acquire(&engine, INLINE, "acme", 1).0);
    clock.advance(Duration::from_secs(10));
    assert!(matches!(waits.as_mut().poll(&mut context), Poll::Ready(Ok(Leased { lease: Some(_), .. }))));
}

#[test]
fn expired_leases_make_room_for_inline_limits() {
    let settings = Settings { max_leases: 8, ..Settings::default() };
    let (engine, clock) = engine_with(settings, vec![]);
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        lease(&engine, "concurrency 1 ttl=10s", key);
    }
    assert_eq!(acquire(&engine, "concurrency 1 ttl=10s", "i", 1).0.reason, Some(Reason::NoRoom));
    clock.advance(Duration::from_secs(10));
    assert!(acquire(&engine, "concurrency 1 ttl=10s", "i", 1).0.allowed);
}

#[test]
fn no_rule_uses_up_the_leases_of_another() {
    let settings = Settings { max_leases: 40, ..Settings::default() };
    let rules = ["exports", "imports", "backups"].map(|name| rule(name, &["concurrency 1 ttl=1h"]));
    let (engine, _) = engine_with(settings, Vec::from(rules));
    let flood = |name: &str| {
        let granted = (0..100).filter(|key| acquire(&engine, name, &key.to_string(), 1).0.allowed).count();
        assert_eq!(granted, 10, "{name}: its third of three quarters, or the inline quarter");
    };
    let _ = ["imports", "concurrency 1 ttl=1h", "exports", "backups"].map(flood);
}

#[test]
fn rules_that_grant_no_leases_have_no_part_of_them() {
    let settings = Settings { max_leases: 8, ..Settings::default() };
    let rules = vec![rule("reply", &["pacer 1/s"]), rule("exports", &["concurrency 1 ttl=1h"])];
    let (engine, _) = engine_with(settings, rules);
    let granted = (0..100).filter(|key| acquire(&engine, "exports", &key.to_string(), 1).0.allowed).count();
    assert_eq!(granted, 6);
}

#[test]
fn lease_events_are_counted_by_rule() {
    let (engine, clock) =
        engine(vec![rule("exports", &["concurrency 3 ttl=30s"]), rule("reply", &["pacer 1/s"])]);
    let leases: Vec<String> = (0..3).map(|_| lease(&engine, "exports", "acme")).collect();
    acquire(&engine, "exports", "acme", 1);
    assert!(renew(&engine, "exports", "acme", &leases[0]) && release(&engine, "exports", "acme", &leases[1]));
    lease(&engine, "concurrency 1 ttl=1h", "acme");
    clock.advance(TTL);
    assert_eq!(remaining(&engine, "exports", "acme"), 3);
    let of = |name: &str| engine.rules().find(name).unwrap().leases();
    let in_memory = Some(HeldLeases { held: 0, expired: 2 });
    assert_eq!(
        of("exports"),
        Some(LeaseStats { acquired: 3, renewed: 1, released: 1, waiting: 0, in_memory })
    );
    assert_eq!(of("reply"), None);
    let in_memory = Some(HeldLeases { held: 1, expired: 0 });
    let inline = LeaseStats { acquired: 1, renewed: 0, released: 0, waiting: 0, in_memory };
    assert_eq!(engine.inline_leases(), inline);
    let tally = engine.rules().find("exports").unwrap().tally();
    assert_eq!((tally.allowed, tally.denied), (3, 1));
}

#[test]
fn an_invalid_lease_is_rejected_an_unknown_one_not_found() {
    let (engine, _) = engine(vec![rule("exports", &["concurrency 1 ttl=30s"])]);
    let now = engine.now();
    let text = lease(&engine, "exports", "acme");
    let (version, digits) = text.split_at(3);
    let other = digits.chars().map(|digit| if digit == '0' { '1' } else { '0' });
    let unknown: String = version.chars().chain(other).collect();
    assert!(!release(&engine, "exports", "acme", &unknown) && !renew(&engine, "exports", "acme", &unknown));
    for wrong in ["", "x", &text[1..], &format!("{text}0"), &text.to_uppercase().replace('0', "Z")] {
        let said = error(at_once(engine.release(on("exports", "acme"), wrong, now)));
        assert!(said.starts_with("not a lease"), "{said}");
        assert_eq!(said, error(at_once(engine.renew(on("exports", "acme"), wrong, now))));
    }
}

#[tokio::test]
async fn a_release_wakes_a_waiter_and_a_drop_leaves_the_queue() {
    let (engine, _) = engine(vec![rule("exports", &["concurrency 1 ttl=30s"])]);
    let minute = Span::from_micros(60_000_000);
    let held = lease(&engine, "exports", "acme");
    let waiting = || engine.rules().find("exports").unwrap().leases().unwrap().waiting;
    let mut left = Box::pin(engine.acquire(on("exports", "acme"), 1, minute, engine.now()));
    assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it waits");
    drop(left);
    assert_eq!(waiting(), 0, "it has left the line");
    let waits = engine.acquire(on("exports", "acme"), 1, minute, engine.now());
    let returns = async {
        while waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(release(&engine, "exports", "acme", &held));
    };
    let (leased, ()) = tokio::join!(waits, returns);
    let leased = leased.unwrap();
    assert!(leased.decided().allowed() && leased.lease.is_some());
    drop(leased);
    assert_eq!(remaining(&engine, "exports", "acme"), 1);
}
