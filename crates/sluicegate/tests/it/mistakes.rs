//! Every refused limit gives one line: what was written, what is wrong with it, what to write instead.

use sluicegate::MemoryStore;
use sluicegate::{Limit, Limiter};

const UNITS: &str = "us ms s m h d (or second minute hour day, and for fixed-window also week month year)";

fn said(text: &str) -> String {
    text.parse::<Limit>().unwrap_err().to_string()
}

#[test]
fn each_mistake_points_at_the_word() {
    let units = |text: &str| format!("{text}; use {UNITS}");
    let rows = [
        ("", "the limit is empty; write one, such as sliding-log 5/60s".to_owned()),
        (
            "slding-log 5/60s",
            r#"slding-log 5/60s: unknown algorithm "slding-log"; did you mean sliding-log?"#.to_owned(),
        ),
        ("concurrency", "concurrency: concurrency needs its measure right after it; write concurrency 10".to_owned()),
        ("concurrency ttl=30s", "concurrency ttl=30s: concurrency needs its measure right after it; write concurrency 10".to_owned()),
        ("concurrency 10/s", r#"concurrency 10/s: "10/s" is a rate, concurrency takes how many at once; write concurrency 10"#.to_owned()),
        ("concurrency ten/s", r#"concurrency ten/s: "ten/s" is a rate, concurrency takes how many at once; write concurrency 10"#.to_owned()),
        ("concurrency 0", "concurrency 0: count 0 is below the least, 1; that would deny every call, use at least 1".to_owned()),
        ("concurrency ten", r#"concurrency ten: count "ten" is not a whole number; use digits only, up to 1000000000"#.to_owned()),
        ("concurrency 1000000001", "concurrency 1000000001: count 1000000001 is above the most, 1000000000; use a smaller number".to_owned()),
        ("concurrency 10 ttl=0s", "concurrency 10 ttl=0s: ttl 0s is below the least, 1us; use at least 1us".to_owned()),
        ("concurrency 10 ttl=3651d", "concurrency 10 ttl=3651d: ttl 3651d is above the most, 3650d; use at most 3650d".to_owned()),
        ("concurrency 10 ttl=30", format!(r#"concurrency 10 ttl=30: "30" has no unit; add one of {UNITS}"#)),
        ("concurrency 10 ttl=week", r#"concurrency 10 ttl=week: "week" is a calendar unit of fixed-window; use 7d, or fixed-window"#.to_owned()),
        ("concurrency 10 queue=3", r#"concurrency 10 queue=3: unknown option "queue"; concurrency takes ttl=DURATION"#.to_owned()),
        ("concurency 10", r#"concurency 10: unknown algorithm "concurency"; did you mean concurrency?"#.to_owned()),
        ("smooth 10/s cold=3", "smooth 10/s cold=3: cold= says how much slower a limiter is before its warm-up; add warmup=, such as warmup=4s, or leave cold= out".to_owned()),
        ("smooth 10/s warmup=4s burst=5", "smooth 10/s warmup=4s burst=5: burst= does not go with warmup=, which itself says how much is stored; leave one of them out".to_owned()),
        ("smooth 10/s warmup=4s cold=0.5", r#"smooth 10/s warmup=4s cold=0.5: cold "0.5" is not from 1 to 1000; use 1 to 1000 with up to three places after the point, such as 3 or 2.5"#.to_owned()),
        ("smooth 10/s warmup=4s cold=1000.001", r#"smooth 10/s warmup=4s cold=1000.001: cold "1000.001" is not from 1 to 1000; use 1 to 1000 with up to three places after the point, such as 3 or 2.5"#.to_owned()),
        ("smooth 10/s warmup=4s cold=99999999999", r#"smooth 10/s warmup=4s cold=99999999999: cold "99999999999" is not from 1 to 1000; use 1 to 1000 with up to three places after the point, such as 3 or 2.5"#.to_owned()),
        ("smooth 10/s warmup=4s cold=2.0005", r#"smooth 10/s warmup=4s cold=2.0005: cold "2.0005" is too fine; use 1 to 1000 with up to three places after the point, such as 3 or 2.5"#.to_owned()),
        ("smooth 10/s warmup=4s cold=.5", r#"smooth 10/s warmup=4s cold=.5: cold ".5" is not a number; use 1 to 1000 with up to three places after the point, such as 3 or 2.5"#.to_owned()),
        ("smooth 10/s warmup=4", format!(r#"smooth 10/s warmup=4: "4" has no unit; add one of {UNITS}"#)),
        ("smooth 10/s queue=4", r#"smooth 10/s queue=4: unknown option "queue"; smooth takes warmup=DURATION cold=FACTOR burst=N initial=N start=TIME"#.to_owned()),
        ("sliding-log", "sliding-log: sliding-log needs its measure right after it; write sliding-log 5/60s".to_owned()),
        ("min-interval", "min-interval: min-interval needs its measure right after it; write min-interval 200ms".to_owned()),
        ("sliding-log 5/60x", units(r#"sliding-log 5/60x: unknown unit "x""#)),
        ("sliding-log 5/S", format!(r#"sliding-log 5/S: unknown unit "S"; write s; use {UNITS}"#)),
        ("sliding-log 5/min", format!(r#"sliding-log 5/min: unknown unit "min"; write m; use {UNITS}"#)),
        ("xyz 5/60s", r#"xyz 5/60s: unknown algorithm "xyz"; use token-bucket leaky-bucket fixed-window sliding-log sliding-window min-interval pacer smooth concurrency"#.to_owned()),
        ("Token_Bucket 5/60s", r#"Token_Bucket 5/60s: unknown algorithm "Token_Bucket"; did you mean token-bucket?"#.to_owned()),
        ("token-bucket burst=5 5/s", "token-bucket burst=5 5/s: token-bucket needs its measure right after it; write token-bucket 5/60s".to_owned()),
        ("sliding-log 5 / 60s", r#"sliding-log 5 / 60s: "5" is not COUNT/PERIOD; write how many in how long without a space, such as 5/60s"#.to_owned()),
        ("sliding-log 5/1.5s", r#"sliding-log 5/1.5s: period "1.5s" is not a whole number and a unit; use a smaller unit for parts, such as 1500ms for 1.5 s"#.to_owned()),
        ("sliding-log 5/-1s", r#"sliding-log 5/-1s: period "-1s" is not a whole number and a unit; use a smaller unit for parts, such as 1500ms for 1.5 s"#.to_owned()),
        ("fixed-window 5/day tz=", r#"fixed-window 5/day tz=: "tz=" has no value; fixed-window takes start=first, start=TIME or tz=ZONE"#.to_owned()),
        ("token-bucket 5/s =5", r#"token-bucket 5/s =5: "=5" is not an option; token-bucket takes burst=N initial=N start=TIME"#.to_owned()),
        ("fixed-window 5/h start=9999-01-01T00:00:00Z", r#"fixed-window 5/h start=9999-01-01T00:00:00Z: "9999-01-01T00:00:00Z" is outside 1970 to 9892, all the time there is; use an RFC 3339 time with its offset, such as 2026-11-11T00:00:00+08:00"#.to_owned()),
        ("sliding-log 5/60", format!(r#"sliding-log 5/60: "60" has no unit; add one of {UNITS}"#)),
        ("sliding-log 5/", format!("sliding-log 5/: the period after / is missing; add one of {UNITS}")),
        ("sliding-log 5", r#"sliding-log 5: "5" is not COUNT/PERIOD; write how many in how long without a space, such as 5/60s"#.to_owned()),
        ("sliding-log x/60s", r#"sliding-log x/60s: count "x" is not a whole number; use digits only, up to 1000000000"#.to_owned()),
        ("sliding-log /60s", r#"sliding-log /60s: count "" is not a whole number; use digits only, up to 1000000000"#.to_owned()),
        ("sliding-log -5/60s", r#"sliding-log -5/60s: count "-5" is not a whole number; use digits only, up to 1000000000"#.to_owned()),
        ("sliding-log 1.5/60s", r#"sliding-log 1.5/60s: count "1.5" is not a whole number; use digits only, up to 1000000000"#.to_owned()),
        ("sliding-log 5/60s 3", r#"sliding-log 5/60s 3: "3" is not an option; sliding-log takes count=all"#.to_owned()),
        ("token-bucket 5/s burst=", r#"token-bucket 5/s burst=: "burst=" has no value; token-bucket takes burst=N initial=N start=TIME"#.to_owned()),
        ("token-bucket 5/s burst=3 burst=4", r#"token-bucket 5/s burst=3 burst=4: "burst" is given twice; keep one of them"#.to_owned()),
        ("token-bucket 5/s brust=3", r#"token-bucket 5/s brust=3: unknown option "brust"; token-bucket takes burst=N initial=N start=TIME"#.to_owned()),
        ("sliding-window 5/s burst=3", r#"sliding-window 5/s burst=3: unknown option "burst"; sliding-window takes no options"#.to_owned()),
        ("sliding-log 5/s count=some", r#"sliding-log 5/s count=some: unknown count="some"; use count=all, or leave it out to count allowed calls only"#.to_owned()),
        ("min-interval 5/s", r#"min-interval 5/s: "5/s" is a rate, min-interval takes a duration; write min-interval 200ms"#.to_owned()),
        ("token-bucket 5/week", r#"token-bucket 5/week: "week" is a calendar unit of fixed-window; use 7d, or fixed-window"#.to_owned()),
        ("fixed-window 5/2weeks", r#"fixed-window 5/2weeks: "2weeks" puts a number on a calendar unit; write week alone, or days such as 7d"#.to_owned()),
        ("fixed-window 5/h tz=UTC", r#"fixed-window 5/h tz=UTC: tz= goes with a calendar unit, not with "h"; use day, week, month or year, or start=TIME"#.to_owned()),
        ("fixed-window 5/24h tz=UTC", r#"fixed-window 5/24h tz=UTC: tz= goes with a calendar unit, not with "24h"; use day, week, month or year, or start=TIME"#.to_owned()),
        ("fixed-window 5/2d tz=UTC", r#"fixed-window 5/2d tz=UTC: tz= goes with a calendar unit, not with "2d"; use day, week, month or year, or start=TIME"#.to_owned()),
        ("fixed-window 5/month start=first", "fixed-window 5/month start=first: start= does not go with the calendar's month; leave start= out: the calendar says when it begins".to_owned()),
        ("fixed-window 5/day tz=Mars/Olympus", r#"fixed-window 5/day tz=Mars/Olympus: unknown time zone "Mars/Olympus"; use a name such as Asia/Shanghai, or an offset such as +08:00"#.to_owned()),
        ("fixed-window 5/day tz=+24:00", r#"fixed-window 5/day tz=+24:00: unknown time zone "+24:00"; use a name such as Asia/Shanghai, or an offset such as +08:00"#.to_owned()),
        ("fixed-window 5/h start=noon", r#"fixed-window 5/h start=noon: "noon" is not a time; use an RFC 3339 time with its offset, such as 2026-11-11T00:00:00+08:00"#.to_owned()),
        ("fixed-window 5/h start=2026-11-11T00:00:00", r#"fixed-window 5/h start=2026-11-11T00:00:00: "2026-11-11T00:00:00" is not a time; use an RFC 3339 time with its offset, such as 2026-11-11T00:00:00+08:00"#.to_owned()),
        ("fixed-window 5/h start=1969-12-31T23:59:59Z", r#"fixed-window 5/h start=1969-12-31T23:59:59Z: "1969-12-31T23:59:59Z" is outside 1970 to 9892, all the time there is; use an RFC 3339 time with its offset, such as 2026-11-11T00:00:00+08:00"#.to_owned()),
        ("token-bucket 5/s start=2026-11-11T00:00:00Z", "token-bucket 5/s start=2026-11-11T00:00:00Z: start= says since when a bucket with initial= has been filling; add initial=, such as initial=0, or leave start= out".to_owned()),
    ];
    for (text, expected) in rows {
        assert_eq!(said(text), expected);
    }
}

#[test]
fn each_number_out_of_bounds_says_the_value_the_bound_and_what_to_do() {
    for (text, expected) in [
        ("sliding-log 0/60s", "count 0 is below the least, 1; that would deny every call, use at least 1"),
        (
            "sliding-window 1000000001/60s",
            "count 1000000001 is above the most, 1000000000; use a smaller number",
        ),
        ("smooth 10/s burst=0", "burst 0 is below the least, 1; that would deny every call, use at least 1"),
        ("smooth 10/s warmup=0s", "warmup 0s is below the least, 1us; use at least 1us"),
        ("smooth 10/s warmup=3651d", "warmup 3651d is above the most, 3650d; use at most 3650d"),
        (
            "smooth 10/s initial=11",
            "initial 11 is above the most, 10; no more than that is ever stored, use that or less",
        ),
        (
            "smooth 1000000000/ms",
            "a second's worth 1000000000000 is above the most, 1000000000; add burst=N with fewer, or use a slower rate",
        ),
        ("fixed-window 0/month", "count 0 is below the least, 1; that would deny every call, use at least 1"),
        (
            "sliding-window 99999999999999999999/60s",
            "count 99999999999999999999 is above the most, 1000000000; use a smaller number",
        ),
        (
            "token-bucket 1/s burst=0",
            "burst 0 is below the least, 1; that would deny every call, use at least 1",
        ),
        (
            "token-bucket 1/s burst=1000000001",
            "burst 1000000001 is above the most, 1000000000; use a smaller number",
        ),
        (
            "token-bucket 1/s burst=5 initial=6",
            "initial 6 is above the most, 5; a bucket cannot start with more than its burst, use that or less",
        ),
        (
            "leaky-bucket 1/s capacity=0",
            "capacity 0 is below the least, 1; that would deny every call, use at least 1",
        ),
        (
            "pacer 1/s queue=1000000001",
            "queue 1000000001 is above the most, 1000000000; use a smaller number",
        ),
        ("sliding-log 5/0s", "period 0s is below the least, 1us; use at least 1us"),
        ("sliding-log 5/3651d", "period 3651d is above the most, 3650d; use at most 3650d"),
        (
            "sliding-log 5/999999999999999d",
            "period 999999999999999d is above the most, 3650d; use at most 3650d",
        ),
        (
            "sliding-log 5/99999999999999999999us",
            "period 99999999999999999999us is above the most, 3650d; use at most 3650d",
        ),
        (
            "token-bucket 1/3650d burst=1000000000",
            "time to fill 3650000000000d is above the most, 36500d; use a smaller burst, or a faster rate",
        ),
        ("min-interval 3651d", "interval 3651d is above the most, 3650d; use at most 3650d"),
        ("min-interval 0ms", "interval 0s is below the least, 1us; use at least 1us"),
        (
            "token-bucket 1/d burst=36501",
            "time to fill 36501d is above the most, 36500d; use a smaller burst, or a faster rate",
        ),
        (
            "leaky-bucket 1/d capacity=36501",
            "time to drain 36501d is above the most, 36500d; use a smaller capacity, or a faster rate",
        ),
        (
            "pacer 1/d queue=36500",
            "time to drain the queue 36501d is above the most, 36500d; use a smaller queue, or a faster rate",
        ),
        (
            "sliding-log 1000001/60s",
            "count 1000001 is above the most, 1000000; a log records every call, use sliding-window for a count this large",
        ),
    ] {
        assert_eq!(said(text), format!("{text}: {expected}"));
    }
}

#[test]
fn the_bounds_themselves_are_fine() {
    for text in [
        "token-bucket 1/d burst=36500",
        "token-bucket 1000000000/1us burst=1000000000",
        "token-bucket 999999999/s",
        "sliding-log 1000000/1us",
        "sliding-window 1000000000/3650d",
        "min-interval 1us",
        "pacer 1000000000/s queue=1000000000",
        "fixed-window 1000000000/year tz=Pacific/Kiritimati",
    ] {
        text.parse::<Limit>().unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn what_cannot_be_printed_is_escaped_and_what_is_long_is_cut() {
    assert_eq!(
        said("sliding-log 5/60s\u{1b}[31m"),
        format!("sliding-log 5/60s\\u{{1b}}[31m: unknown unit \"s\\u{{1b}}[31m\"; use {UNITS}")
    );
    let long = said(&"x".repeat(300));
    assert_eq!(
        long,
        format!(
            "{}…: a limit of 300 bytes is above the most, 256; write one limit, such as sliding-log 5/60s",
            "x".repeat(80)
        )
    );
    assert!(!said("a\nb\rc d").contains(['\n', '\r']));
    // What would turn or break the line is escaped too.
    assert!(said("sliding-log\u{202e} 5/60s").starts_with(r"sliding-log\u{202e} 5/60s: unknown algorithm"));
}

#[test]
fn a_start_is_rfc_3339_and_nothing_looser() {
    for start in [
        "2026-11-11",
        "2026-11-11T00Z",
        "20261111T000000Z",
        "2026-11-11T00:00Z",
        "2026-11-11T00:00:00+08",
        "2026-11-11T23:59:60Z",
        "2026-11-11T00:00:00+08:00[Asia/Tokyo]",
        "2026-11-11T00:00:00.0000001Z",
        "2026-11-11T00:00:00.Z",
        "2026-13-11T00:00:00Z",
        "2026-11-11t00:00:00z",
        "+002026-11-11T00:00:00Z",
    ] {
        assert!(said(&format!("fixed-window 5/h start={start}")).contains("is not a time"), "{start}");
    }
}

#[test]
fn a_limiter_refuses_what_gives_leases_alone_and_in_a_list() {
    let said = "concurrency 10 ttl=30s: concurrency gives leases, which checks cannot return; make a Semaphore of it, alone (over the network: RL.ACQUIRE)";
    let alone = Limiter::new("concurrency 10 ttl=30s").unwrap_err();
    let in_a_list = Limiter::new(["sliding-log 5/60s", "concurrency 10 ttl=30s"]).unwrap_err();
    assert_eq!([alone.to_string(), in_a_list.to_string()], [said, said]);
    let limiter = Limiter::new("sliding-log 5/60s").unwrap();
    assert_eq!(limiter.change("concurrency 10 ttl=30s").unwrap_err().to_string(), said);
    let store = MemoryStore::builder().build().unwrap();
    let shared = Limiter::builder("concurrency 10 ttl=30s").in_store(&store, "scope").build();
    assert_eq!(shared.unwrap_err().to_string(), said);
}
