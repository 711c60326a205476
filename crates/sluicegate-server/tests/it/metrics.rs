//! `/metrics`.

use crate::http_client::{Serving, posted};
use crate::redis_store::Redis;
use crate::running::{Seen, TEST_TIMEOUT, at_once, config, rule, start};
use sluicegate::clock::ManualClock;
use sluicegate::{Span, Time};
use sluicegate_server::engine::{Engine, KeySpec, RuleCache, RuleSpec, Settings, Target, Throttle};
use sluicegate_server::metrics::Metrics;
use sluicegate_server::protocol::Protocol;
use sluicegate_server::server::Server;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A page of metrics, parsed as Prometheus would.
#[derive(Debug)]
pub(crate) struct Page {
    /// Families by name, with their type.
    pub(crate) families: BTreeMap<String, String>,
    /// Series, as written, with their values.
    pub(crate) series: BTreeMap<String, String>,
}

impl Page {
    /// Parses the page, and panics if it is invalid.
    pub(crate) fn read(text: &str) -> Page {
        let mut page = Page { families: BTreeMap::new(), series: BTreeMap::new() };
        let mut helped = BTreeSet::new();
        let body = text.strip_suffix("# EOF\n").expect("the end is marked");
        for line in body.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap();
                assert!(help.ends_with('.') && help.len() > 10, "{name}: {help}");
                assert!(!help.contains(['"', '\\']), "{name}: what would have to be escaped: {help}");
                assert!(helped.insert(name.to_owned()), "{name} is explained twice");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert!(helped.contains(name), "{name} is not explained");
                page.families.insert(name.to_owned(), kind.to_owned());
            } else if let Some(unit) = line.strip_prefix("# UNIT ") {
                let (name, unit) = unit.split_once(' ').unwrap();
                assert!(name.ends_with(&format!("_{unit}")), "{name} does not end in its unit, {unit}");
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                page.family_of(series);
                let before = page.series.insert(series.to_owned(), value.to_owned());
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert_eq!(before, None, "{series} is there twice");
            }
        }
        page
    }

    /// The value of a counter.
    pub(crate) fn count(&self, series: &str) -> u64 {
        self.text(series).parse().unwrap()
    }

    /// The value of a gauge.
    pub(crate) fn value(&self, series: &str) -> f64 {
        self.text(series).parse().unwrap()
    }

    fn text(&self, series: &str) -> &str {
        self.series.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.series.keys()))
    }

    /// The names of all samples, without labels.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.series.keys().map(|series| name(series)).collect()
    }

    fn family_of(&self, series: &str) {
        let name = name(series);
        let known = |family: &str, kinds: &[&str]| {
            self.families.get(family).is_some_and(|kind| kinds.contains(&kind.as_str()))
        };
        let belongs = known(name, &["gauge"])
            || name.strip_suffix("_total").is_some_and(|family| known(family, &["counter"]))
            || ["_bucket", "_sum", "_count"]
                .iter()
                .filter_map(|suffix| name.strip_suffix(suffix))
                .any(|family| known(family, &["histogram"]));
        assert!(belongs, "{series} belongs to no family");
    }
}

fn name(series: &str) -> &str {
    series.split('{').next().unwrap()
}

const NOON: Time = Time::from_micros(1_794_830_400_000_000).unwrap();

fn engine(rules: Vec<RuleSpec>) -> Engine {
    let settings = Settings { max_keys: 20_000, ..Settings::default() };
    let engine = Engine::new(settings, Arc::new(ManualClock::at(NOON))).unwrap();
    engine.load(rules).unwrap();
    engine
}

fn check(engine: &Engine, rule: &str, key: &str) {
    let target = Target { rule, key: key.as_bytes() };
    Seen::of(&engine.check(&mut RuleCache::default(), target, 1, None).unwrap(), NOON).unwrap();
}

/// The pages of two new servers, with keys in memory and in Redis: all series that exist.
pub(crate) fn page_of_new_servers() -> Page {
    let in_memory = engine(vec![rule("reply", &["sliding-log 5/60s"]), rule("api", &["token-bucket 10/s"])]);
    let mut page = Page::read(&Metrics::default().render(&in_memory));
    let redis = Redis::start();
    let in_redis = Page::read(&redis.serving(config()).get("/metrics").text);
    page.families.extend(in_redis.families);
    page.series.extend(in_redis.series);
    page
}

#[test]
fn a_decision_is_counted_by_rule_and_outcome() {
    let strict = rule("reply", &["sliding-log 2/60s"]);
    let trial = RuleSpec { shadow: true, ..rule("trial", &["sliding-log 1/60s"]) };
    let keys = vec![(b"bad".to_vec(), KeySpec::Blocked), (b"good".to_vec(), KeySpec::Unlimited)];
    let picky = RuleSpec { keys, ..rule("picky", &["sliding-log 1/60s"]) };
    let engine = engine(vec![strict, trial, picky]);
    for _ in 0..5 {
        check(&engine, "reply", "user:42");
        check(&engine, "trial", "user:42");
        check(&engine, "picky", "bad");
        check(&engine, "picky", "good");
    }
    let user = engine.call(Target { rule: "reply", key: b"user:42" }, 1).unwrap();
    at_once(user.peek(NOON)).unwrap();

    let page = Page::read(&Metrics::default().render(&engine));
    for (rule, allowed, denied, shadow_denied) in
        [("reply", 2, 3, 0), ("trial", 1, 0, 4), ("picky", 5, 5, 0), ("inline", 0, 0, 0)]
    {
        for (outcome, count) in [("allowed", allowed), ("denied", denied), ("shadow_denied", shadow_denied)] {
            let series = format!("sluice_decisions_total{{rule=\"{rule}\",outcome=\"{outcome}\"}}");
            assert_eq!(page.count(&series), count, "{series}");
        }
    }
    assert_eq!(page.count("sluice_rules"), 3);
}

#[test]
fn inline_limits_share_one_label() {
    let engine = engine(Vec::new());
    check(&engine, "sliding-log 1/60s", "user:42");
    check(&engine, "sliding-log 1/60s", "user:42");
    check(&engine, "fixed-window 7/h", "user:42");
    let throttle = Throttle { max_burst: 0, count: 1, period_s: 60, quantity: 1 };
    for _ in 0..2 {
        let call = engine.throttle(&mut RuleCache::default(), b"user:42", &throttle).unwrap();
        Seen::of(&call, NOON).unwrap();
    }
    let page = Page::read(&Metrics::default().render(&engine));
    assert_eq!(page.count("sluice_decisions_total{rule=\"inline\",outcome=\"allowed\"}"), 3);
    assert_eq!(page.count("sluice_decisions_total{rule=\"inline\",outcome=\"denied\"}"), 2);
}

#[test]
fn no_rule_may_be_named_inline() {
    let engine = engine(vec![rule("reply", &["sliding-log 5/60s"])]);
    let error = engine.load(vec![rule("inline", &["sliding-log 5/60s"])]).unwrap_err();
    assert!(error.to_string().starts_with("rule name \"inline\" is reserved"), "{error}");
    assert!(engine.rules().find("reply").is_some(), "the rules before go on");
}

#[test]
fn no_series_grows_with_keys_or_inline_limits() {
    let engine = engine(vec![rule("reply", &["sliding-log 5/60s"])]);
    let metrics = Metrics::default();
    let before = Page::read(&metrics.render(&engine));
    for number in 0..10_000 {
        check(&engine, "reply", &format!("user-{number}"));
    }
    for count in 1..=1_000 {
        check(&engine, &format!("fixed-window {count}/h"), "user:42");
    }
    for _ in 0..1_000 {
        metrics.connected(Protocol::Resp);
        metrics.protocol_error(Protocol::Http);
    }
    let after = Page::read(&metrics.render(&engine));
    assert_eq!(after.count("sluice_decisions_total{rule=\"reply\",outcome=\"allowed\"}"), 10_000);
    assert_eq!(after.count("sluice_decisions_total{rule=\"inline\",outcome=\"allowed\"}"), 1_000);
    assert!(before.series.keys().eq(after.series.keys()), "{before:#?}\n{after:#?}");
    // Three per rule, 27 per protocol and some more, whatever clients do.
    assert!(after.series.len() < 54 + 27 * Protocol::ALL.len(), "{}", after.series.len());
}

#[test]
fn a_removed_rule_loses_its_series() {
    let engine = engine(vec![rule("old", &["sliding-log 5/60s"]), rule("kept", &["sliding-log 5/60s"])]);
    check(&engine, "kept", "user:42");
    engine.load(vec![rule("kept", &["sliding-log 9/60s"])]).unwrap();
    let page = Page::read(&Metrics::default().render(&engine));
    assert!(!page.series.keys().any(|series| series.contains("rule=\"old\"")));
    let kept = page.count("sluice_decisions_total{rule=\"kept\",outcome=\"allowed\"}");
    assert_eq!(kept, 1, "a changed rule keeps its counts");
}

#[test]
fn connections_are_counted_by_protocol() {
    let metrics = Metrics::default();
    for _ in 0..3 {
        metrics.connected(Protocol::Resp);
    }
    metrics.disconnected(Protocol::Resp);
    metrics.rejected(Protocol::Resp);
    metrics.protocol_error(Protocol::Http);
    let page = Page::read(&metrics.render(&engine(Vec::new())));
    for (name, resp, http) in [
        ("sluice_connections", 2, 0),
        ("sluice_connections_accepted_total", 3, 0),
        ("sluice_connections_rejected_total", 1, 0),
        ("sluice_protocol_errors_total", 0, 1),
    ] {
        assert_eq!(page.count(&format!("{name}{{protocol=\"resp\"}}")), resp, "{name}");
        assert_eq!(page.count(&format!("{name}{{protocol=\"http\"}}")), http, "{name}");
    }
}

#[test]
fn a_batch_counts_each_request() {
    let metrics = Metrics::default();
    metrics.answered(Protocol::Resp, 100, Duration::from_micros(30));
    metrics.answered(Protocol::Resp, 1, Duration::from_micros(3));
    let page = Page::read(&metrics.render(&engine(Vec::new())));
    let at_most = |le: &str| {
        page.count(&format!("sluice_request_duration_seconds_bucket{{le=\"{le}\",protocol=\"resp\"}}"))
    };
    assert_eq!(at_most("0.0000025"), 0);
    assert_eq!(at_most("0.000005"), 1);
    assert_eq!(at_most("0.00005"), 101);
    assert_eq!(at_most("+Inf"), 101);
    assert_eq!(page.count("sluice_request_duration_seconds_count{protocol=\"resp\"}"), 101);
    let sum = page.value("sluice_request_duration_seconds_sum{protocol=\"resp\"}");
    assert!((sum - 0.003_003).abs() < 1e-9, "{sum}");
    assert_eq!(page.count("sluice_request_duration_seconds_count{protocol=\"http\"}"), 0);
}

#[test]
fn a_failed_reload_shows_until_one_succeeds() {
    let metrics = Metrics::default();
    let engine = engine(Vec::new());
    let page = || Page::read(&metrics.render(&engine));
    let (successful, at) =
        ("sluice_config_last_reload_successful", "sluice_config_last_reload_success_timestamp_seconds");
    let started = page().value(at);
    assert_eq!(page().count(successful), 1, "what the server started with was taken up");

    metrics.reloaded(false);
    assert_eq!(page().count(successful), 0);
    assert!(page().value(at) <= started, "what is in use is as old as before");
    assert_eq!(page().count("sluice_config_reloads_total{outcome=\"failure\"}"), 1);

    metrics.reloaded(true);
    assert_eq!(page().count(successful), 1);
    assert!(page().value(at) > started);
    assert_eq!(page().count("sluice_config_reloads_total{outcome=\"success\"}"), 1);
}

#[test]
fn the_process_is_described() {
    let page = page_of_new_servers();
    let version = env!("CARGO_PKG_VERSION");
    let build = page.series.keys().find(|series| series.starts_with("sluice_build_info")).unwrap();
    assert!(build.contains(&format!("version=\"{version}\"")), "{build}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((0.0..60.0).contains(&(now - page.value("process_start_time_seconds"))));
    if cfg!(target_os = "linux") {
        assert!(page.count("process_resident_memory_bytes") > 100_000);
        assert!(page.count("process_open_fds") <= page.count("process_max_fds"));
    }
}

/// Waits until a series has a value.
async fn until(server: &Server, series: &str, wanted: u64) {
    let service = server.service();
    let began = Instant::now();
    loop {
        let count = Page::read(&service.metrics.render(&service.engine)).count(series);
        if count == wanted {
            return;
        }
        assert!(began.elapsed() < TEST_TIMEOUT, "{series} stays {count}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_connection_is_counted() {
    let server = start(config()).await;
    let mut client = TcpStream::connect(server.address(Protocol::Resp).unwrap()).await.unwrap();
    until(&server, "sluice_connections{protocol=\"resp\"}", 1).await;

    client.write_all(b"PING\r\nPING\r\n").await.unwrap();
    let mut pongs = [0; 14];
    client.read_exact(&mut pongs).await.unwrap();
    until(&server, "sluice_request_duration_seconds_count{protocol=\"resp\"}", 2).await;

    client.write_all(b"*1\r\n!nonsense\r\n").await.unwrap();
    until(&server, "sluice_protocol_errors_total{protocol=\"resp\"}", 1).await;
    drop(client);
    until(&server, "sluice_connections{protocol=\"resp\"}", 0).await;
    until(&server, "sluice_connections_accepted_total{protocol=\"resp\"}", 1).await;
    server.stop().await;
}

#[test]
fn lease_events_are_counted_by_rule() {
    let engine =
        engine(vec![rule("exports", &["concurrency 3 ttl=30s"]), rule("reply", &["sliding-log 5/60s"])]);
    let acquire = |rule: &str| {
        let target = Target { rule, key: b"acme" };
        let leased = at_once(engine.acquire(target, 1, Span::ZERO, NOON)).unwrap();
        leased.lease.map(|lease| {
            let text = lease.text().to_owned();
            lease.delivered();
            text
        })
    };
    let leases: Vec<String> = (0..4).filter_map(|_| acquire("exports")).collect();
    acquire("concurrency 1 ttl=1h").unwrap();
    let exports = Target { rule: "exports", key: b"acme" };
    assert!(at_once(engine.renew(exports, &leases[0], NOON)).unwrap());
    assert!(at_once(engine.release(exports, &leases[1], NOON)).unwrap());
    let later = NOON.saturating_add(Span::from_micros(30_000_000));
    at_once(engine.call(exports, 1).unwrap().peek(later)).unwrap();
    let page = Page::read(&Metrics::default().render(&engine));
    let event =
        |rule, event| page.count(&format!("sluice_lease_events_total{{rule=\"{rule}\",event=\"{event}\"}}"));
    assert_eq!(
        ["acquired", "renewed", "released", "expired"].map(|name| event("exports", name)),
        [3, 1, 1, 2]
    );
    assert_eq!(
        ["acquired", "renewed", "released", "expired"].map(|name| event("inline", name)),
        [1, 0, 0, 0]
    );
    assert_eq!(page.count("sluice_leases{rule=\"exports\"}"), 0);
    assert_eq!(page.count("sluice_leases{rule=\"inline\"}"), 1);
    assert_eq!(page.count("sluice_lease_waiters{rule=\"exports\"}"), 0);
    assert_eq!(page.count("sluice_leases_max"), 100_000);
    assert_eq!(page.count("sluice_decisions_total{rule=\"exports\",outcome=\"denied\"}"), 1);
    assert!(!page.series.keys().any(|series| series.contains("lease") && series.contains("reply")));
}

#[test]
fn every_request_is_timed_and_errors_are_counted() {
    let serving = Serving::with_rules(&[("reply", "sliding-log 1/60s")]);
    let user = r#"{"rule":"reply","key":"user:42"}"#;
    let asked = [
        serving.post("/v1/check", user).status,
        serving.post("/v1/check?enforce=true", user).status,
        serving.post("/v1/check", "{}").status,
        serving.get("/healthz").status,
        serving.get("/nothing").status,
    ];
    assert_eq!(asked, [200, 429, 400, 200, 404]);
    // The head arrived, and the body never will: the request was not read, and is not timed.
    let answer = serving.say(&posted("/v1/check", &" ".repeat(1_000_000)).as_bytes()[..200]);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    serving.counts_protocol_errors(1);
    let service = serving.server().service();
    let page = Page::read(&service.metrics.render(&service.engine));
    assert_eq!(page.count("sluice_request_duration_seconds_count{protocol=\"http\"}"), 5);
    assert_eq!(page.count("sluice_client_errors_total{protocol=\"http\"}"), 2, "400 and 404");
    assert_eq!(page.count("sluice_client_errors_total{protocol=\"resp\"}"), 0);
    assert_eq!(page.count("sluice_protocol_errors_total{protocol=\"http\"}"), 1, "413");
}
