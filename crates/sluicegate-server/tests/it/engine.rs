//! The engine: rules, exceptions, inline limits, reloads.

use crate::running::{Seen, at_once, rule};
use sluicegate::OnFull;
use sluicegate::clock::ManualClock;
use sluicegate::{ReserveOptions, RetryAfter, Span};
use sluicegate_server::engine::{
    DecidedAll, Engine, KeySpec, Reason, RequestError, ReservedCall, RuleCache, RuleCall, RuleSpec, Settings,
    Target, Throttle, Throttled,
};
use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn engine_with(settings: Settings, rules: Vec<RuleSpec>) -> (Engine, ManualClock) {
    let clock = ManualClock::default();
    let engine = Engine::new(Settings { max_keys: 10_000, ..settings }, Arc::new(clock.clone())).unwrap();
    engine.load(rules).unwrap();
    (engine, clock)
}

fn engine(rules: Vec<RuleSpec>) -> (Engine, ManualClock) {
    engine_with(Settings::default(), rules)
}

fn on<'a>(rule: &'a str, key: &'a str) -> Target<'a> {
    Target { rule, key: key.as_bytes() }
}

fn try_check(engine: &Engine, target: Target<'_>, cost: u64) -> Result<Seen, RequestError> {
    Seen::of(&engine.check(&mut RuleCache::default(), target, cost, None)?, engine.now())
}

fn check(engine: &Engine, rule: &str, key: &str, cost: u64) -> Seen {
    try_check(engine, on(rule, key), cost).unwrap()
}

/// Whether the reservation is allowed, its receipt, and what it is granted.
fn reserved(engine: &Engine, call: &RuleCall<'_>, options: &ReserveOptions) -> (bool, Option<String>, u64) {
    let ReservedCall { decided, receipt, granted } = at_once(call.reserve(options, engine.now())).unwrap();
    (decided.allowed(), receipt, granted)
}

fn call<'a>(engine: &Engine, rule: &'a str, key: &'a str, cost: u64) -> RuleCall<'a> {
    engine.call(on(rule, key), cost).unwrap()
}

fn error<T>(answer: Result<T, RequestError>) -> String {
    answer.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_rule_and_an_equal_inline_limit_share_no_state() {
    let (engine, _) =
        engine(vec![rule("reply", &["sliding-log 5/60s"]), rule("other", &["sliding-log 5/60s"])]);
    assert_eq!(check(&engine, "reply", "user:42", 2).remaining, 3);
    assert_eq!(check(&engine, "other", "user:42", 1).remaining, 4);
    assert_eq!(check(&engine, "sliding-log 5/60s", "user:42", 1).remaining, 4);
    assert_eq!(
        check(&engine, "sliding-log 5/1min", "user:42", 1).remaining,
        3,
        "the same limit in other words"
    );
    assert_eq!(check(&engine, "sliding-log 10/60s", "user:42", 1).remaining, 9, "another limit");
    assert_eq!(check(&engine, "reply", "user:7", 1).remaining, 4);
}

#[test]
fn a_denial_names_its_limit_and_its_reason() {
    let both = rule("api", &["token-bucket 10/s burst=50", "fixed-window 3/day"]);
    let later = rule("later", &["fixed-window 5/h start=2030-01-01T00:00:00Z"]);
    let (engine, _) = engine(vec![both, later]);
    assert_eq!(check(&engine, "api", "k", 3).reason, None);
    let denied = check(&engine, "api", "k", 1);
    assert_eq!((denied.allowed, denied.denied_by.as_deref()), (false, Some("fixed-window 3/d")));
    assert_eq!(denied.reason, Some(Reason::Limit));
    assert_eq!(check(&engine, "api", "k", 51).reason, Some(Reason::CostExceedsLimit));
    assert_eq!(check(&engine, "later", "k", 1).reason, Some(Reason::NotStarted));
}

fn with_exceptions() -> RuleSpec {
    let limits = |text: &str| KeySpec::Limits(vec![text.parse().unwrap()]);
    RuleSpec {
        keys: vec![
            (b"partner-7".to_vec(), limits("token-bucket 100/s burst=500")),
            (b"health-check".to_vec(), KeySpec::Unlimited),
            (b"203.0.113.9".to_vec(), KeySpec::Blocked),
        ],
        ..rule("api", &["token-bucket 10/s burst=50"])
    }
}

#[test]
fn exceptions_per_key() {
    let (engine, _) = engine(vec![with_exceptions()]);
    assert_eq!(check(&engine, "api", "anyone", 1).limit, 50);
    assert_eq!(check(&engine, "api", "partner-7", 1).limit, 500);
    let unlimited = check(&engine, "api", "health-check", 1_000_000_000);
    assert_eq!(
        (unlimited.allowed, unlimited.limit, unlimited.remaining),
        (true, 1_000_000_000_000, 1_000_000_000_000)
    );
    let blocked = check(&engine, "api", "203.0.113.9", 1);
    assert_eq!((blocked.allowed, blocked.limit, blocked.remaining), (false, 0, 0));
    assert_eq!((blocked.retry_after, blocked.reason), (Some(RetryAfter::Never), Some(Reason::Blocked)));
    assert_eq!(at_once(call(&engine, "api", "203.0.113.9", 5).take(engine.now())).unwrap().1, 0);
    assert_eq!(at_once(call(&engine, "api", "health-check", 5).take(engine.now())).unwrap().1, 5);
    assert_eq!(
        reserved(&engine, &call(&engine, "api", "203.0.113.9", 5), &ReserveOptions::default()),
        (false, None, 0)
    );
    assert_eq!(
        reserved(&engine, &call(&engine, "api", "health-check", 5), &ReserveOptions::default().at_least(2)),
        (true, None, 5)
    );
}

#[test]
fn a_shadow_rule_allows_and_reports() {
    let (engine, _) = engine(vec![RuleSpec { shadow: true, ..rule("try", &["fixed-window 1/day"]) }]);
    assert!(check(&engine, "try", "k", 1).reason.is_none());
    let verdict = check(&engine, "try", "k", 1);
    assert!(verdict.allowed && verdict.remaining == 0 && verdict.retry_after.is_some());
    assert_eq!(verdict.denied_by.as_deref(), Some("fixed-window 1/d"));
    let tally = engine.find("try").unwrap().tally();
    assert_eq!((tally.allowed, tally.denied, tally.shadow_denied), (1, 0, 1));
}

#[test]
fn a_reload_keeps_state_and_counts() {
    let (engine, _) = engine(vec![rule("reply", &["sliding-log 5/60s"]), rule("gone", &["min-interval 1s"])]);
    assert_eq!(check(&engine, "reply", "user:42", 3).remaining, 2);
    engine.load(vec![rule("reply", &["sliding-log 10/60s"]), rule("new", &["min-interval 1s"])]).unwrap();
    assert_eq!(check(&engine, "reply", "user:42", 1).remaining, 6);
    assert_eq!(engine.find("reply").unwrap().tally().allowed, 2);
    assert!(engine.find("gone").is_err() && engine.find("new").is_ok());
    // A new exception keeps what its key has used.
    let partner = vec![(b"user:42".to_vec(), KeySpec::Limits(vec!["sliding-log 100/60s".parse().unwrap()]))];
    engine.load(vec![RuleSpec { keys: partner, ..rule("reply", &["sliding-log 10/60s"]) }]).unwrap();
    assert_eq!(check(&engine, "reply", "user:42", 0).remaining, 96);
    // An invalid set of rules is rejected as a whole.
    let twice = vec![rule("a", &["min-interval 1s"]), rule("a", &["min-interval 2s"])];
    assert_eq!(error(engine.load(twice)), r#"two rules are named "a"; rename one of them"#);
    assert_eq!(check(&engine, "reply", "user:42", 0).remaining, 96);
}

fn throttle(engine: &Engine, key: &str, numbers: [i64; 4]) -> Throttled {
    let [max_burst, count, period_s, quantity] = numbers;
    let throttle = Throttle { max_burst, count, period_s, quantity };
    let call = engine.throttle(&mut RuleCache::default(), key.as_bytes(), &throttle).unwrap();
    Seen::with(&call, engine.now(), |decided| Throttled::from(&decided)).unwrap()
}

#[test]
fn throttle_has_one_scope_and_reinterprets_debt() {
    let (engine, clock) = engine(Vec::new());
    let first = throttle(&engine, "user123", [15, 30, 60, 1]);
    assert_eq!(
        first,
        Throttled { limited: false, limit: 16, remaining: 15, retry_after_s: -1, reset_after_s: 2 }
    );
    // Eight more units make 18 s of debt; at 60 per minute that is 18 units.
    assert_eq!(throttle(&engine, "user123", [15, 30, 60, 8]).remaining, 7);
    assert_eq!(throttle(&engine, "user123", [29, 60, 60, 0]).remaining, 12);
    assert_eq!(throttle(&engine, "user123", [15, 30, 60, -9]).remaining, 16, "a refund stops at full");
    assert_eq!(throttle(&engine, "user123", [15, 30, 60, 17]).retry_after_s, -1, "never");
    clock.advance(Duration::from_millis(1));
    assert!(!throttle(&engine, "user123", [15, 30, 60, 1]).limited);
    assert_eq!(check(&engine, "token-bucket 30/60s burst=16", "user123", 1).remaining, 15, "another scope");
    let wrong = |max_burst, count, period_s| {
        error(engine.throttle(
            &mut RuleCache::default(),
            b"k",
            &Throttle { max_burst, count, period_s, quantity: 1 },
        ))
    };
    assert_eq!(wrong(-1, 1, 1), "max_burst is -1; use a whole number of at least 0");
    assert_eq!(wrong(1, 0, 1), "count per period is 0; use a whole number of at least 1");
    assert_eq!(wrong(1, 1, 0), "period is 0; use a whole number of at least 1");
    assert!(wrong(i64::MAX, 1, 1).contains("burst"), "{}", wrong(i64::MAX, 1, 1));
}

#[test]
fn several_calls_are_charged_all_or_nothing() {
    let shadow = RuleSpec { shadow: true, ..rule("try", &["fixed-window 1/day"]) };
    let (engine, _) = engine(vec![rule("user", &["sliding-log 2/60s"]), shadow, with_exceptions()]);
    let part = |rule, key, cost| call(&engine, rule, key, cost);
    let all = |calls: &[RuleCall<'_>]| {
        let DecidedAll { all, each, .. } = at_once(engine.decide_all(calls, None, engine.now())).unwrap();
        (Seen::from(all), each.into_iter().map(Seen::from).collect::<Vec<_>>())
    };
    let (verdict, each) = all(&[part("user", "user", 1), part("fixed-window 100/day", "site", 1)]);
    assert!(verdict.allowed && verdict.remaining == 1 && each[1].remaining == 99);
    // The shadow rule never denies, and is charged while it would allow.
    for (shadow_denied, remaining) in [(false, 0), (true, 0)] {
        let (verdict, each) =
            all(&[part("try", "k", 1), part("api", "anyone", 1), part("api", "health-check", 9)]);
        assert!(verdict.allowed && each.iter().all(|one| one.allowed));
        assert_eq!((each[0].denied(), each[0].remaining), (shadow_denied, remaining));
    }
    assert_eq!(check(&engine, "api", "anyone", 0).remaining, 48);
    // Denied by one, charged to none.
    let (verdict, each) = all(&[part("api", "anyone", 1), part("user", "user", 2)]);
    assert!(!verdict.allowed && verdict.denied_by.as_deref() == Some("sliding-log 2/min"));
    assert_eq!(each.iter().map(|one| one.allowed).collect::<Vec<_>>(), [true, false]);
    for cost in [0, 1] {
        let (verdict, _) = all(&[part("api", "anyone", 1), part("api", "203.0.113.9", cost)]);
        assert_eq!(verdict.reason, Some(Reason::Blocked));
    }
    assert_eq!(check(&engine, "api", "anyone", 0).remaining, 48);
    // A key given twice is one key with both costs.
    let (verdict, _) = all(&[part("user", "ron", 1), part("user", "ron", 2)]);
    assert_eq!(verdict.reason, Some(Reason::CostExceedsLimit));
    assert!(all(&[]).0.allowed);
    let many: Vec<_> = (0..65).map(|_| part("user", "x", 0)).collect();
    assert!(error(at_once(engine.decide_all(&many, None, engine.now()))).contains("at most 64"));
}

#[test]
fn receipts_carry_their_scope_and_key() {
    let (engine, _) = engine(vec![rule("mail", &["token-bucket 1/h burst=10"])]);
    let reserve =
        |rule: &str, cost| reserved(&engine, &call(&engine, rule, "k", cost), &ReserveOptions::default());
    let (_, named, _) = reserve("mail", 4);
    let (_, inline, _) = reserve("token-bucket 1/h burst=10", 4);
    assert_eq!(reserve("mail", 7), (false, None, 0));
    let receipt = |text: Option<String>| engine.receipt(&text.unwrap()).unwrap();
    assert_eq!(at_once(engine.cancel(&receipt(named), engine.now())), Ok(true));
    assert_eq!(at_once(engine.settle(&receipt(inline), &[1], engine.now())), Ok(true));
    assert_eq!(check(&engine, "mail", "k", 0).remaining, 10);
    assert_eq!(check(&engine, "token-bucket 1/h burst=10", "k", 0).remaining, 9);
    assert!(error(engine.receipt("nonsense")).starts_with("not a receipt"));
}

#[test]
fn an_inline_list_shares_no_state_with_its_limits() {
    let (engine, _) = engine(vec![rule("api", &["fixed-window 5/min", "fixed-window 9/h"])]);
    let list = "fixed-window 5/min + fixed-window 9/h";
    assert_eq!(check(&engine, list, "acme", 3).remaining, 2);
    assert_eq!(check(&engine, "fixed-window 5/60s  +  fixed-window 9/hour", "acme", 1).remaining, 1);
    assert_eq!(check(&engine, "fixed-window 5/min", "acme", 1).remaining, 4, "a limit of the list alone");
    assert_eq!(check(&engine, "fixed-window 9/h", "acme", 1).remaining, 8, "the other one");
    assert_eq!(
        check(&engine, "fixed-window 9/h + fixed-window 5/min", "acme", 1).remaining,
        4,
        "in another order"
    );
    assert_eq!(
        check(&engine, "fixed-window 5/min + fixed-window 8/h", "acme", 1).remaining,
        4,
        "another list"
    );
    assert_eq!(check(&engine, "api", "acme", 1).remaining, 4, "a rule with the same limits");
    let denied = check(&engine, list, "acme", 2);
    assert_eq!((denied.allowed, denied.denied_by.as_deref()), (false, Some("fixed-window 5/min")));
    // Equal limits at two positions are two limits.
    assert_eq!(check(&engine, "fixed-window 5/min + fixed-window 5/min", "acme", 1).remaining, 4);
}

#[test]
fn an_inline_list_must_go_together() {
    let (engine, _) = engine(vec![]);
    let said = |text: &str| error(try_check(&engine, on(text, "acme"), 1));
    assert_eq!(
        said("sliding-log 5/min count=all + pacer 1/s"),
        "sliding-log 5/min count=all: count=all does not go with other limits; leave count=all out, or use it alone"
    );
    assert_eq!(
        said("pacer 1/s + concurrency 3 ttl=1s"),
        "concurrency 3 ttl=1s: concurrency grants leases and cannot be part of a list; make it a rule of its own"
    );
    assert_eq!(
        said("5/s"),
        "5/s: \"5/s\" is a rate without an algorithm; name an algorithm, for example token-bucket 5/s"
    );
}

#[test]
fn exceeding_a_bound_is_an_error() {
    let settings = Settings { allow_inline: false, key_len_max: 8, cost_max: 100, ..Settings::default() };
    let (engine, _) = engine_with(settings, vec![rule("reply", &["sliding-log 5/60s"])]);
    assert!(try_check(&engine, on("reply", "12345678"), 1).is_ok());
    assert_eq!(
        error(try_check(&engine, on("reply", "123456789"), 1)),
        "the key has 9 bytes; use at most 8, or hash it"
    );
    assert_eq!(error(try_check(&engine, on("reply", "k"), 101)), "cost 101 is too large; use at most 100");
    let inline_off = "inline limits are disabled (allow_inline = false); use the name of a rule";
    assert_eq!(error(try_check(&engine, on("sliding-log 5/60s", "k"), 1)), inline_off);
    let throttle = Throttle { max_burst: 1, count: 1, period_s: 1, quantity: 1 };
    assert_eq!(error(engine.throttle(&mut RuleCache::default(), b"k", &throttle)), inline_off);
    assert!(error(try_check(&engine, on("rply", "k"), 1)).starts_with(r#"no rule is called "rply""#));
    let long = "x".repeat(10_000);
    assert!(error(try_check(&engine, on(&long, "k"), 1)).len() < 300, "a name is not echoed at any length");
}

/// An endless series of inline limits: unused ones are dropped, and no state in use is lost.
#[test]
fn inline_limits_may_change_without_end() {
    let (engine, clock) = engine(vec![rule("reply", &["sliding-log 5/60s"])]);
    assert_eq!(check(&engine, "reply", "user:42", 3).remaining, 2);
    for n in 1..=30_000 {
        let limit = format!("token-bucket {n}/s burst=1000000");
        check(&engine, &limit, "k", 1);
        clock.advance(Duration::from_micros(100));
    }
    assert_eq!(check(&engine, "reply", "user:42", 0).remaining, 2);
}

/// Limits that stay in use for a year make room for each other, and the rules can still change.
#[test]
fn inline_limits_cannot_block_a_reload() {
    // Room for more keys than limits.
    let settings = Settings { max_keys: 100_000, ..Settings::default() };
    let engine = Engine::new(settings, Arc::new(ManualClock::default())).unwrap();
    engine.load(vec![rule("reply", &["sliding-log 5/60s"])]).unwrap();
    for n in 1..70_000 {
        let limit = format!("fixed-window {n}/365d");
        try_check(&engine, on(&limit, "k"), 1).unwrap();
    }
    engine.load(vec![rule("reply", &["sliding-log 7/60s"])]).unwrap();
    assert_eq!(check(&engine, "reply", "user:42", 1).remaining, 6);
}

/// With no room for a new key, every rule of the request counts a denial.
#[test]
fn check_all_without_room_counts_as_denied() {
    let clock = ManualClock::default();
    let settings = Settings { max_keys: 1, on_full: OnFull::Deny, ..Settings::default() };
    let engine = Engine::new(settings, Arc::new(clock)).unwrap();
    engine.load(vec![rule("a", &["fixed-window 5/day"]), rule("b", &["fixed-window 5/day"])]).unwrap();
    assert!(check(&engine, "a", "first", 1).allowed);
    let calls = ["a", "b"].map(|rule| call(&engine, rule, "second", 1));
    let DecidedAll { all, .. } = at_once(engine.decide_all(&calls, None, engine.now())).unwrap();
    assert_eq!((all.allowed(), all.reason()), (false, Some(Reason::NoRoom)));
    assert_eq!(["a", "b"].map(|rule| engine.find(rule).unwrap().tally().denied), [1, 1]);
}

#[test]
fn a_shadow_rule_lets_callers_take_everything() {
    let (engine, _) = engine(vec![RuleSpec { shadow: true, ..rule("try", &["fixed-window 3/day"]) }]);
    for remaining in [0, 0] {
        let call = call(&engine, "try", "k", 5);
        let (decided, taken) = at_once(call.take(engine.now())).unwrap();
        assert_eq!((decided.allowed(), taken, decided.remaining()), (true, 5, remaining));
    }
}

#[test]
fn a_connection_follows_a_reload_and_counts() {
    let (engine, _) = engine(vec![rule("reply", &["sliding-log 2/60s"])]);
    let mut cache = RuleCache::default();
    let ask = |cache: &mut RuleCache| {
        let call = engine.check(cache, on("reply", "user:42"), 1, None).unwrap();
        Seen::of(&call, engine.now()).unwrap()
    };
    assert_eq!([1, 2, 3].map(|_| ask(&mut cache).allowed), [true, true, false]);
    cache.flush();
    let tally = engine.find("reply").unwrap().tally();
    assert_eq!((tally.allowed, tally.denied), (2, 1));
    engine.load(vec![rule("reply", &["sliding-log 3/60s"])]).unwrap();
    assert!(ask(&mut cache).allowed, "the new rule");
    drop(cache);
    assert_eq!(
        engine.find("reply").unwrap().tally().allowed,
        3,
        "a connection that ends leaves nothing uncounted"
    );
}

/// A rule is reloaded while calls wait for its leases: with more permits, with fewer, and with an
/// exception for one key.
#[test]
fn a_reload_applies_to_lease_waiters() {
    let exports = |limit: &str| rule("exports", &[limit]);
    let (engine, _) = engine(vec![exports("concurrency 1 ttl=60s")]);
    let ask = |key, cost, wait: u64| {
        engine.acquire(on("exports", key), cost, Span::from_micros(wait * 1_000_000), engine.now())
    };
    let held = ["acme", "small"].map(|key| at_once(ask(key, 1, 0)).unwrap().lease.unwrap());
    let mut context = Context::from_waker(Waker::noop());
    let (mut acme, mut small) = (pin!(ask("acme", 1, 30)), pin!(ask("small", 1, 30)));
    assert!(acme.as_mut().poll(&mut context).is_pending() && small.as_mut().poll(&mut context).is_pending());

    let one = vec!["concurrency 1 ttl=60s".parse().unwrap()];
    let keys = vec![(b"small".to_vec(), KeySpec::Limits(one))];
    engine.load(vec![RuleSpec { keys, ..exports("concurrency 2 ttl=60s") }]).unwrap();
    let Poll::Ready(Ok(second)) = acme.as_mut().poll(&mut context) else {
        panic!("there are two places now")
    };
    assert!(second.lease.is_some());
    assert!(small.as_mut().poll(&mut context).is_pending(), "its own numbers are another's");

    let mut both = pin!(ask("acme", 2, 30));
    assert!(both.as_mut().poll(&mut context).is_pending());
    engine.load(vec![exports("concurrency 1 ttl=60s")]).unwrap();
    let Poll::Ready(Ok(refused)) = both.as_mut().poll(&mut context) else { panic!("no wait helps it") };
    assert_eq!((refused.lease.is_some(), refused.decided().retry_after()), (false, Some(RetryAfter::Never)));
    assert_eq!(refused.decided().denied_by(), Some("concurrency 1 ttl=1min"), "by the rules of now");
    drop(held);
}

#[test]
fn inline_limits_have_bounds_of_their_own() {
    let hour = Some(Duration::from_secs(3_600));
    let settings = Settings { inline_period_max: hour, ..Settings::default() };
    let engine = Engine::new(settings, Arc::new(ManualClock::default())).unwrap();
    let error =
        |limit: &str| engine.call(Target { rule: limit, key: b"k" }, 1).map(drop).unwrap_err().to_string();
    for limit in
        ["sliding-log 1000/h", "fixed-window 1/h", "concurrency 1 ttl=1h", "token-bucket 1000000/min"]
    {
        assert!(engine.call(Target { rule: limit, key: b"k" }, 1).is_ok(), "{limit}");
    }
    assert_eq!(
        error("token-bucket 1/s + sliding-log 1001/h"),
        "sliding-log 1001/h: count 1001 is above inline_log_count_max, 1000; use sliding-window, or define a rule"
    );
    assert_eq!(
        error("fixed-window 1/day"),
        "fixed-window 1/d: period 1d is above inline_period_max, 1h; use a shorter one, or define a rule"
    );
    assert!(error("concurrency 1 ttl=2h").contains("period 2h is above inline_period_max, 1h"));
    let log = rule("log", &["sliding-log 5000/day"]);
    engine.load(vec![log]).unwrap();
    assert!(engine.call(Target { rule: "log", key: b"k" }, 1).is_ok(), "a rule may exceed both");
}
