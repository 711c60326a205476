//! What is read, and how it is printed.

use sluicegate::limit::Bounds;
use sluicegate::{Limit, Limiter};
use sluicegate_core::{Algorithm as _, AnyState, Time};

fn printed(text: &str) -> String {
    text.parse::<Limit>().unwrap_or_else(|error| panic!("{error}")).to_string()
}

#[test]
fn equal_limits_print_the_same() {
    for (written, canonical) in [
        ("token-bucket 30/60s burst=15", "token-bucket 30/min burst=15"),
        ("token-bucket 10/1000ms", "token-bucket 10/s"),
        ("token-bucket 10/1s", "token-bucket 10/s"),
        ("token-bucket 10/second", "token-bucket 10/s"),
        ("token-bucket 10/1seconds burst=10", "token-bucket 10/s"),
        ("token-bucket 60/60s", "token-bucket 60/min"),
        ("token-bucket 60/2minutes", "token-bucket 60/2min"),
        ("token-bucket 60/2m", "token-bucket 60/2min"),
        ("token-bucket 60/2Mins", "token-bucket 60/2min"),
        ("token-bucket 60/1MIN", "token-bucket 60/min"),
        ("token-bucket 10/sec", "token-bucket 10/s"),
        ("token-bucket 10/S", "token-bucket 10/s"),
        ("token-bucket 10/10secs", "token-bucket 10/10s"),
        ("token-bucket 10/hr", "token-bucket 10/h"),
        ("token-bucket 10/2hrs", "token-bucket 10/2h"),
        ("token-bucket 10/250msec", "token-bucket 10/250ms"),
        ("token-bucket 10/250_000\u{b5}s", "token-bucket 10/250ms"),
        ("token-bucket 10/Days", "token-bucket 10/d"),
        ("token-bucket 1_000/s", "token-bucket 1000/s"),
        ("token-bucket 1k/s", "token-bucket 1000/s"),
        ("token-bucket 1K/s burst=2k", "token-bucket 1000/s burst=2000"),
        ("token-bucket 1M/s burst=1_0M", "token-bucket 1000000/s burst=10000000"),
        ("token-bucket 1G/us", "token-bucket 1000000000/us"),
        ("concurrency 1_0 ttl=1minute", "concurrency 10 ttl=1min"),
        ("min-interval 30m", "min-interval 30min"),
        ("fixed-window 1k/Month", "fixed-window 1000/month"),
        ("fixed-window 1/1Day tz=+8", "fixed-window 1/day tz=+08:00"),
        ("token-bucket 5/24hours", "token-bucket 5/d"),
        ("token-bucket 5/1500us", "token-bucket 5/1500us"),
        ("token-bucket 007/s", "token-bucket 7/s"),
        ("token-bucket 50/10s initial=0", "token-bucket 50/10s initial=0"),
        ("token-bucket 50/10s initial=50", "token-bucket 50/10s"),
        ("token-bucket 50/10s initial=20 burst=20", "token-bucket 50/10s burst=20"),
        (
            "token-bucket 50/10s initial=0 start=2026-11-11T00:00:00+08:00",
            "token-bucket 50/10s initial=0 start=2026-11-10T16:00:00Z",
        ),
        ("token-bucket 5/s initial=5 start=2020-01-01T00:00:00Z", "token-bucket 5/s"),
        ("leaky-bucket 1/2s capacity=3", "leaky-bucket 1/2s capacity=3"),
        ("leaky-bucket 3/2s capacity=3", "leaky-bucket 3/2s"),
        ("fixed-window 5/60s", "fixed-window 5/min"),
        ("fixed-window 5/60s start=epoch", "fixed-window 5/min"),
        ("fixed-window 5/60s start=1970-01-01T00:00:00Z", "fixed-window 5/min"),
        ("fixed-window 5/60s start=first", "fixed-window 5/min start=first"),
        ("fixed-window 1/day", "fixed-window 1/d"),
        ("fixed-window 1/day tz=UTC", "fixed-window 1/d"),
        ("fixed-window 1/day tz=+00:00", "fixed-window 1/d"),
        ("fixed-window 1/day tz=Asia/Shanghai", "fixed-window 1/day tz=Asia/Shanghai"),
        ("fixed-window 1/1d tz=asia/shanghai", "fixed-window 1/day tz=Asia/Shanghai"),
        ("fixed-window 1/day tz=+8", "fixed-window 1/day tz=+08:00"),
        ("fixed-window 1/day tz=-0330", "fixed-window 1/day tz=-03:30"),
        ("fixed-window 1/week", "fixed-window 1/week"),
        ("fixed-window 1/month tz=utc", "fixed-window 1/month"),
        ("fixed-window 1/year tz=Europe/Berlin", "fixed-window 1/year tz=Europe/Berlin"),
        (
            "fixed-window 100/1h start=2026-11-11T00:00:00.000001+08:00",
            "fixed-window 100/h start=2026-11-10T16:00:00.000001Z",
        ),
        ("sliding-log 5/60s", "sliding-log 5/min"),
        ("sliding-log 5/60s count=all", "sliding-log 5/min count=all"),
        ("sliding-window 1000/1min", "sliding-window 1000/min"),
        ("min-interval 200ms", "min-interval 200ms"),
        ("min-interval 60s", "min-interval 1min"),
        ("pacer 10/s queue=20", "pacer 10/s queue=20"),
        ("pacer 10/s queue=10", "pacer 10/s"),
        ("pacer 10/s queue=0", "pacer 10/s queue=0"),
        ("concurrency 010", "concurrency 10"),
        ("concurrency 10 ttl=30000ms", "concurrency 10 ttl=30s"),
        ("concurrency 1 ttl=day", "concurrency 1 ttl=1d"),
        ("smooth 10/1000ms", "smooth 10/s"),
        ("smooth 10/s burst=10 initial=0", "smooth 10/s"),
        ("smooth 600/min burst=10", "smooth 600/min"),
        ("smooth 10/s initial=3 burst=20", "smooth 10/s burst=20 initial=3"),
        ("smooth 1/1min burst=1", "smooth 1/min burst=1"),
        ("smooth 10/s warmup=4000ms cold=3.0", "smooth 10/s warmup=4s"),
        ("smooth 10/s warmup=4s initial=40", "smooth 10/s warmup=4s"),
        ("smooth 10/s cold=02.500 warmup=60s initial=0", "smooth 10/s warmup=1min cold=2.5 initial=0"),
        ("smooth 10/s warmup=4s cold=1", "smooth 10/s warmup=4s cold=1"),
        ("smooth 10/s start=2026-11-11T00:00:00+08:00", "smooth 10/s start=2026-11-10T16:00:00Z"),
        ("smooth 1000000000/us burst=1000000000", "smooth 1000000000/us burst=1000000000"),
        ("  sliding-log \t 5/60s  ", "sliding-log 5/min"),
        ("token-bucket 1000000000/us", "token-bucket 1000000000/us"),
        ("token-bucket 1/3650d burst=10", "token-bucket 1/3650d burst=10"),
        ("min-interval 3650d", "min-interval 3650d"),
    ] {
        assert_eq!(printed(written), canonical, "{written}");
        assert_eq!(printed(canonical), canonical, "{canonical} printed again");
        assert_eq!(written.parse::<Limit>().unwrap(), canonical.parse().unwrap(), "{written}");
    }
}

/// The page is right about what it shows.
#[test]
fn the_page_of_limits_holds() {
    let page = include_str!("../../../../docs/limits.md");
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let lines = |index: usize| blocks[index].lines().skip(1);
    let limits = |line: &str| Limit::parse_list(line.split("  ").next().unwrap());
    assert_eq!(lines(0).map(|line| limits(line).unwrap().len()).sum::<usize>(), 16);
    assert_eq!(lines(1).map(|line| limits(line).unwrap().len()).collect::<Vec<_>>(), [2]);
    for line in lines(2) {
        let text = line.split(": ").next().unwrap();
        assert_eq!(Limit::parse_list(text).unwrap_err().to_string(), line);
    }
    let rows: Vec<Vec<&str>> = page
        .lines()
        .skip_while(|line| !line.starts_with("| written"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('`').collect())
        .collect();
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert_eq!(Limit::list_text(&Limit::parse_list(row[1]).unwrap()), row[3]);
    }
}

#[test]
fn a_list_prints_as_it_is_read() {
    for (written, canonical) in [
        (
            "token-bucket 10/s burst=50 + fixed-window 1k/day",
            "token-bucket 10/s burst=50 + fixed-window 1000/d",
        ),
        (" pacer 60/60s\t+\tpacer 1/s  ", "pacer 60/min + pacer 1/s"),
        ("fixed-window 5/day tz=+8 + pacer 1/s", "fixed-window 5/day tz=+08:00 + pacer 1/s"),
        ("sliding-log 5/60s", "sliding-log 5/min"),
    ] {
        let limits = Limit::parse_list(written).unwrap();
        assert_eq!(Limit::list_text(&limits), canonical);
        assert_eq!(Limit::parse_list(canonical).unwrap(), limits);
    }
}

#[test]
fn a_limiter_takes_a_list_as_text() {
    let text = "token-bucket 10/s burst=50 + fixed-window 20/day";
    let api = Limiter::new(text).unwrap();
    let decision = api.check_cost("tenant:acme", 21);
    assert_eq!((decision.allowed(), decision.denied_by()), (false, Some(1)));
    assert_eq!(
        Limiter::new([text, "pacer 1/s"]).unwrap().limits().len(),
        3,
        "a list in an array is flattened"
    );
}

#[test]
fn different_limits_differ() {
    let limits: Vec<Limit> =
        ["sliding-log 5/60s", "sliding-log 10/60s", "sliding-log 5/60s count=all", "sliding-window 5/60s"]
            .into_iter()
            .map(|text| text.parse().unwrap())
            .collect();
    for (index, limit) in limits.iter().enumerate() {
        assert_eq!(limits.iter().position(|other| other == limit), Some(index));
    }
}

/// 10 tokens in 2 s are 5 in 1 s, but a limit is printed as it was meant.
#[test]
fn a_count_is_never_reduced() {
    assert_eq!(printed("token-bucket 10/2s"), "token-bucket 10/2s");
}

#[test]
fn the_count_of_a_log_can_be_bounded_further_but_not_less() {
    let mut bounds = Bounds::default();
    for (most, allowed) in [(500, 500), (10_000, 10_000), (2_000_000, 10_000)] {
        bounds.log_count_max = most;
        assert!(Limit::parse(&format!("sliding-log {allowed}/60s"), bounds).is_ok());
        let error = Limit::parse(&format!("sliding-log {}/60s", allowed + 1), bounds).unwrap_err();
        assert!(error.to_string().contains(&format!("above the maximum, {allowed}; ")), "{error}");
    }
}

#[test]
fn initial_counts_from_the_creation_or_start() {
    let at = |micros| Time::from_micros(micros).unwrap();
    let limit: Limit = "token-bucket 1/s burst=10 initial=0".parse().unwrap();
    let made = limit.made_at(at(5_000_000)).unwrap();
    assert_eq!(made.remaining(&AnyState::default(), at(5_000_000)), 0);
    assert_eq!(made.remaining(&AnyState::default(), at(8_000_000)), 3);
    let limit: Limit = "token-bucket 1/s burst=10 initial=0 start=1970-01-01T00:00:02Z".parse().unwrap();
    assert_eq!(limit.made_at(at(5_000_000)).unwrap().remaining(&AnyState::default(), at(8_000_000)), 6);
}
