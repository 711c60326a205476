//! Every rejected limit gives one line: what was written, what is wrong with it, what to write
//! instead.

use sluicegate::MemoryStore;
use sluicegate::limit::{LIMIT_LEN_MAX, LIMITS_MAX, LIST_LEN_MAX};
use sluicegate::{Limit, LimitError, Limiter};

const UNITS: &str = "us ms s min h d (or second minute hour day, and for fixed-window also week month year)";

fn said(text: &str) -> String {
    text.parse::<Limit>().unwrap_err().to_string()
}

#[test]
fn each_error_points_at_the_word() {
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
        ("concurrency 0", "concurrency 0: count 0 is below the minimum, 1; that would deny every call, use at least 1".to_owned()),
        ("concurrency ten", r#"concurrency ten: count "ten" is not a whole number; write a number up to 1000000000000, such as 500, 1_000 or 2k"#.to_owned()),
        ("concurrency 1000000000001", "concurrency 1000000000001: count 1000000000001 is above the maximum, 1000000000000; use a smaller number".to_owned()),
        ("concurrency 10 ttl=0s", "concurrency 10 ttl=0s: ttl 0s is below the minimum, 1us; use at least 1us".to_owned()),
        ("concurrency 10 ttl=3651d", "concurrency 10 ttl=3651d: ttl 3651d is above the maximum, 3650d; use at most 3650d".to_owned()),
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
        ("sliding-log 5/M", r#"sliding-log 5/M: the unit "M" could be minutes or months; write min or month"#.to_owned()),
        ("sliding-log 5/15minuts", r#"sliding-log 5/15minuts: unknown unit "minuts"; did you mean minutes?"#.to_owned()),
        ("xyz 5/60s", r#"xyz 5/60s: unknown algorithm "xyz"; use token-bucket leaky-bucket fixed-window sliding-log sliding-window min-interval pacer smooth concurrency"#.to_owned()),
        ("Token_Bucket 5/60s", r#"Token_Bucket 5/60s: unknown algorithm "Token_Bucket"; did you mean token-bucket?"#.to_owned()),
        ("token-bucket burst=5 5/s", "token-bucket burst=5 5/s: token-bucket needs its measure right after it; write token-bucket 5/60s".to_owned()),
        ("sliding-log 5 / 60s", r#"sliding-log 5 / 60s: "5" is not COUNT/PERIOD; write how many in how long without a space, such as 5/60s"#.to_owned()),
        ("sliding-log 5/1.5s", r#"sliding-log 5/1.5s: period "1.5s" is not a whole number and a unit; use a smaller unit for parts, such as 1500ms for 1.5 s"#.to_owned()),
        ("sliding-log 5/-1s", r#"sliding-log 5/-1s: period "-1s" is not a whole number and a unit; use a smaller unit for parts, such as 1500ms for 1.5 s"#.to_owned()),
        ("fixed-window 5/day tz=", r#"fixed-window 5/day tz=: "tz=" has no value; fixed-window takes start=first, start=TIME or tz=ZONE"#.to_owned()),
        ("token-bucket 5/s =5", r#"token-bucket 5/s =5: "=5" is not an option; token-bucket takes burst=N initial=N start=TIME"#.to_owned()),
        ("fixed-window 5/h start=9999-01-01T00:00:00Z", r#"fixed-window 5/h start=9999-01-01T00:00:00Z: "9999-01-01T00:00:00Z" is outside the years 1970 to 9892; use an RFC 3339 time with its offset, such as 2026-11-11T00:00:00+08:00"#.to_owned()),
        ("sliding-log 5/60", format!(r#"sliding-log 5/60: "60" has no unit; add one of {UNITS}"#)),
        ("sliding-log 5/", format!("sliding-log 5/: the period after / is missing; add one of {UNITS}")),
        ("sliding-log 5", r#"sliding-log 5: "5" is not COUNT/PERIOD; write how many in how long without a space, such as 5/60s"#.to_owned()),
        ("sliding-log x/60s", r#"sliding-log x/60s: count "x" is not a whole number; write a number up to 1000000000000, such as 500, 1_000 or 2k"#.to_owned()),
        ("sliding-log /60s", r#"sliding-log /60s: count "" is not a whole number; write a number up to 1000000000000, such as 500, 1_000 or 2k"#.to_owned()),
        ("sliding-log -5/60s", r#"sliding-log -5/60s: count "-5" is not a whole number; write a number up to 1000000000000, such as 500, 1_000 or 2k"#.to_owned()),
        ("sliding-log 1.5/60s", r#"sliding-log 1.5/60s: count "1.5" has a fraction, counts are whole numbers; write 3/2min"#.to_owned()),
        ("sliding-log 5/60s 3", r#"sliding-log 5/60s 3: "3" is not an option; sliding-log takes count=all"#.to_owned()),
        ("token-bucket 5/s burst=", r#"token-bucket 5/s burst=: "burst=" has no value; token-bucket takes burst=N initial=N start=TIME"#.to_owned()),
        ("token-bucket 5/s burst=3 burst=4", r#"token-bucket 5/s burst=3 burst=4: "burst" is given twice; keep one of them"#.to_owned()),
        ("token-bucket 5/s brust=3", r#"token-bucket 5/s brust=3: unknown option "brust"; did you mean burst=?"#.to_owned()),
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
        ("fixed-window 5/h start=1969-12-31T23:59:59Z", r#"fixed-window 5/h start=1969-12-31T23:59:59Z: "1969-12-31T23:59:59Z" is outside the years 1970 to 9892; use an RFC 3339 time with its offset, such as 2026-11-11T00:00:00+08:00"#.to_owned()),
        ("token-bucket 5/s start=2026-11-11T00:00:00Z", "token-bucket 5/s start=2026-11-11T00:00:00Z: start= says since when a bucket with initial= has been filling; add initial=, such as initial=0, or leave start= out".to_owned()),
    ];
    for (text, expected) in rows {
        assert_eq!(said(text), expected);
    }
}

/// What engineers write who come from elsewhere, and the one suggestion that they get.
#[test]
#[allow(clippy::too_many_lines, reason = "it is a table")]
fn a_near_miss_gets_a_suggestion() {
    for (text, expected) in [
        ("5/s", r#""5/s" is a rate without an algorithm; name an algorithm, for example token-bucket 5/s"#),
        (
            "100/min",
            r#""100/min" is a rate without an algorithm; name an algorithm, for example token-bucket 100/min"#,
        ),
        (
            "0.5/s",
            r#""0.5/s" is a rate without an algorithm; name an algorithm, for example token-bucket 1/2s"#,
        ),
        (
            "100/month",
            r#""100/month" is a rate without an algorithm; name an algorithm, for example fixed-window 100/month"#,
        ),
        (
            "200ms",
            r#""200ms" is a duration without an algorithm; name an algorithm, for example min-interval 200ms"#,
        ),
        (
            "10",
            r#""10" is a count without an algorithm; name an algorithm, for example concurrency 10, or token-bucket 10/s"#,
        ),
        (
            "5/60x burst=3",
            r#""5/60x" is a measure without an algorithm; name an algorithm, for example token-bucket 5/s"#,
        ),
        ("gcra 5/15min", r#"unknown algorithm "gcra"; gcra is called token-bucket here"#),
        ("GCRA 5/15min", r#"unknown algorithm "GCRA"; gcra is called token-bucket here"#),
        ("throttle 5/s", r#"unknown algorithm "throttle"; throttle is called token-bucket here"#),
        ("leaky 5/s", r#"unknown algorithm "leaky"; leaky is called leaky-bucket here"#),
        ("funnel 5/s", r#"unknown algorithm "funnel"; funnel is called leaky-bucket here"#),
        ("fixed 5/s", r#"unknown algorithm "fixed"; fixed is called fixed-window here"#),
        ("sliding 5/s", r#"unknown algorithm "sliding"; did you mean sliding-log or sliding-window?"#),
        ("semaphore 5", r#"unknown algorithm "semaphore"; semaphore is called concurrency here"#),
        ("tokenbucket 5/s", r#"unknown algorithm "tokenbucket"; did you mean token-bucket?"#),
        ("token_bucket 5/s", r#"unknown algorithm "token_bucket"; did you mean token-bucket?"#),
        (
            "foo 5/s",
            r#"unknown algorithm "foo"; use token-bucket leaky-bucket fixed-window sliding-log sliding-window min-interval pacer smooth concurrency"#,
        ),
        ("sliding-log 5/60s, burst=3", r#""5/60s," has a comma; put only a space between options, no comma"#),
        (
            "token-bucket 5/60s burst=3, initial=0",
            r#""burst=3," has a comma; put only a space between options, no comma"#,
        ),
        (
            "token-bucket 5/60s burst=3,initial=0",
            r#""3,initial=0" has a comma; put only a space between options, no comma"#,
        ),
        ("token-bucket 1,000/s", r#""1,000/s" has a comma; write large numbers as 1000, 1_000 or 1k"#),
        ("token-bucket 0.5/s", r#"count "0.5" has a fraction, counts are whole numbers; write 1/2s"#),
        ("token-bucket .25/min", r#"count ".25" has a fraction, counts are whole numbers; write 1/4min"#),
        ("token-bucket 1.5k/s", r#"count "1.5k" has a fraction, counts are whole numbers; write 1500/s"#),
        (
            "fixed-window 0.5/month",
            r#"count "0.5" has a fraction, counts are whole numbers; write 1/2s for 0.5/s"#,
        ),
        (
            "token-bucket 0.00/s",
            r#"count "0.00" has a fraction, counts are whole numbers; write 1/2s for 0.5/s"#,
        ),
        ("token-bucket 5m/s", r#"count "5m" is not a whole number; write 5M"#),
        ("token-bucket 2B/s", r#"count "2B" is not a whole number; write 2G"#),
        (
            "token-bucket _5/s",
            r#"count "_5" has a misplaced underscore; write single underscores between digits, such as 1_000"#,
        ),
        (
            "token-bucket 5_/s",
            r#"count "5_" has a misplaced underscore; write single underscores between digits, such as 1_000"#,
        ),
        (
            "token-bucket 5__0/s",
            r#"count "5__0" has a misplaced underscore; write single underscores between digits, such as 1_000"#,
        ),
        (
            "token-bucket 5_k/s",
            r#"count "5_" has a misplaced underscore; write single underscores between digits, such as 1_000"#,
        ),
        (
            "token-bucket 5/1_s",
            r#"period "1_" has a misplaced underscore; write single underscores between digits, such as 1_000"#,
        ),
        (
            "token-bucket k/s",
            r#"count "k" is not a whole number; write a number up to 1000000000000, such as 500, 1_000 or 2k"#,
        ),
        (
            "token-bucket 2T/s",
            "count 2000000000000 is above the maximum, 1000000000000; use a smaller number",
        ),
        (
            "token-bucket 99999999999G/s",
            "count 99999999999G is above the maximum, 1000000000000; use a smaller number",
        ),
        ("token-bucket 5/s Burst=3", r#"unknown option "Burst"; did you mean burst=?"#),
        ("concurrency 5 tll=3s", r#"unknown option "tll"; did you mean ttl=?"#),
        ("leaky-bucket 5/s burst=3", r#"unknown option "burst"; leaky-bucket takes capacity=N"#),
        (
            "fixed-window 5/day tz=America/NewYork",
            r#"unknown time zone "America/NewYork"; did you mean America/New_York?"#,
        ),
        (
            "fixed-window 5/day tz=Europe/Berlni",
            r#"unknown time zone "Europe/Berlni"; did you mean Europe/Berlin?"#,
        ),
        ("fixed-window 5/day tz=new-york", r#"unknown time zone "new-york"; did you mean America/New_York?"#),
        ("fixed-window 5/day tz=UTC+8", r#"unknown time zone "UTC+8"; did you mean +08:00?"#),
        (
            "fixed-window 5/day tz=PST",
            r#"unknown time zone "PST"; use a name such as Asia/Shanghai, or an offset such as +08:00"#,
        ),
    ] {
        assert_eq!(said(text), format!("{text}: {expected}"));
    }
}

fn rejected(text: &str) -> LimitError {
    Limit::parse_list(text).unwrap_err()
}

#[test]
fn a_list_is_rejected_as_one_text() {
    let nine = ["pacer 1/s"; 9].join(" + ");
    for (text, word, expected) in [
        ("token-bucket 10/s + sliding-log 5/60x", "5/60x", format!(r#"unknown unit "x"; use {UNITS}"#)),
        (
            "pacer 1/s + pacer 1/s quue=3",
            "quue=3",
            r#"unknown option "quue"; did you mean queue=?"#.to_owned(),
        ),
        (
            "pacer 1/s + token-bucket 5/s burst=0 start=first",
            "burst=0",
            "burst 0 is below the minimum, 1; that would deny every call, use at least 1".to_owned(),
        ),
        (
            "pacer 1/s + gcra 1/s",
            "gcra",
            r#"unknown algorithm "gcra"; gcra is called token-bucket here"#.to_owned(),
        ),
        (
            "pacer 1/s + pacer queue=3",
            "pacer",
            "pacer needs its measure right after it; write pacer 5/60s".to_owned(),
        ),
        (
            "pacer 1/s + token-bucket 1/d burst=36501",
            "token-bucket 1/d burst=36501",
            "time to fill 36501d is above the maximum, 36500d; use a smaller burst, or a faster rate"
                .to_owned(),
        ),
        ("pacer 1/s +", "", "there is no limit beside a +; write one on each side of it".to_owned()),
        ("+ pacer 1/s", "", "there is no limit beside a +; write one on each side of it".to_owned()),
        (
            "pacer 1/s + + pacer 1/s",
            "",
            "there is no limit beside a +; write one on each side of it".to_owned(),
        ),
        (
            "pacer 1/s+pacer 1/s",
            "1/s+pacer",
            r#"the + in "1/s+pacer" is part of a word; put a space on each side of it, as in A + B"#
                .to_owned(),
        ),
        (
            "pacer 1/s +pacer 1/s",
            "+pacer",
            r#"the + in "+pacer" is part of a word; put a space on each side of it, as in A + B"#.to_owned(),
        ),
        (
            "pacer 1/s+ pacer 1/s",
            "1/s+",
            r#"the + in "1/s+" is part of a word; put a space on each side of it, as in A + B"#.to_owned(),
        ),
    ] {
        let error = rejected(text);
        assert_eq!(error.to_string(), format!("{text}: {expected}"));
        assert_eq!(&text[error.position().unwrap()], word, "{text}");
    }
    let error = rejected("pacer 1/s + pacer 1/x + pacer 1/s");
    assert_eq!(error.position(), Some(18..21), "of three equal names the second has the word");
    let too_many = rejected(&nine).to_string();
    assert!(
        too_many.ends_with("…: a list of 9 limits is above the maximum, 8; leave some out"),
        "{too_many}"
    );
    assert_eq!(
        said("pacer 1/s + pacer 2/s"),
        "pacer 1/s + pacer 2/s: a list of 2 limits is not one limit; write one, or read the list with Limit::parse_list"
    );
}

#[test]
fn a_long_list_is_shown_from_the_limit_that_is_wrong() {
    let text = format!("{} + sliding-log 5/60x", ["fixed-window 1/day tz=Asia/Shanghai"; 4].join(" + "));
    let error = rejected(&text);
    assert_eq!(error.to_string(), format!(r#"… sliding-log 5/60x: unknown unit "x"; use {UNITS}"#));
    assert_eq!(&text[error.position().unwrap()], "5/60x");
    let text = format!("token-bucket 5/s{}brust=3", " ".repeat(100));
    assert_eq!(
        text.parse::<Limit>().unwrap_err().to_string(),
        r#"… brust=3: unknown option "brust"; did you mean burst=?"#
    );
}

#[test]
fn the_bounds_of_a_list_are_fine() {
    let longest = format!("fixed-window{}1/day", " ".repeat(LIMIT_LEN_MAX - "fixed-window1/day".len()));
    let list = [longest.as_str(); LIMITS_MAX].join(" + ");
    assert_eq!((list.len(), LIST_LEN_MAX), (2_069, 2_069));
    assert_eq!(Limit::parse_list(&list).unwrap().len(), LIMITS_MAX);
    let too_long = rejected(&format!("{list} ")).to_string();
    assert!(
        too_long
            .ends_with("limits of 2070 bytes are above the maximum, 2069; shorten them, or leave some out"),
        "{too_long}"
    );
    let one_too_long = rejected(&format!("pacer 1/s + {longest} start=first")).to_string();
    assert!(
        one_too_long.ends_with(
            "a limit of 268 bytes is above the maximum, 256; write a shorter one, such as sliding-log 5/60s"
        ),
        "{one_too_long}"
    );
    // An array is as long at most.
    let limiter = Limiter::new(vec!["pacer 1/s"; LIMITS_MAX + 1]).unwrap_err();
    assert_eq!(limiter.to_string(), "a list of 9 limits is above the maximum, 8; leave some out");
}

#[test]
fn bounds_errors_name_the_value_and_the_bound() {
    for (text, expected) in [
        ("sliding-log 0/60s", "count 0 is below the minimum, 1; that would deny every call, use at least 1"),
        (
            "sliding-window 1000000000001/60s",
            "count 1000000000001 is above the maximum, 1000000000000; use a smaller number",
        ),
        (
            "smooth 10/s burst=0",
            "burst 0 is below the minimum, 1; that would deny every call, use at least 1",
        ),
        ("smooth 10/s warmup=0s", "warmup 0s is below the minimum, 1us; use at least 1us"),
        ("smooth 10/s warmup=3651d", "warmup 3651d is above the maximum, 3650d; use at most 3650d"),
        (
            "smooth 10/s initial=11",
            "initial 11 is above the maximum, 10; no more than that is ever stored, use that or less",
        ),
        (
            "smooth 1000000000/ms",
            "a second's worth 1000000000000 is above the maximum, 1000000000; add burst=N with fewer, or use a slower rate",
        ),
        (
            "fixed-window 0/month",
            "count 0 is below the minimum, 1; that would deny every call, use at least 1",
        ),
        (
            "sliding-window 99999999999999999999/60s",
            "count 99999999999999999999 is above the maximum, 1000000000000; use a smaller number",
        ),
        (
            "token-bucket 1/s burst=0",
            "burst 0 is below the minimum, 1; that would deny every call, use at least 1",
        ),
        (
            "token-bucket 1/s burst=1000000000001",
            "burst 1000000000001 is above the maximum, 1000000000000; use a smaller number",
        ),
        (
            "token-bucket 999999999999/s",
            "count 999999999999 would divide a microsecond into 999999999999 parts, above the maximum, 1000000000; \
             use 1000000000000, the nearest that is exact",
        ),
        (
            "pacer 1000000001/3us",
            "count 1000000001 would divide a microsecond into 1000000001 parts, above the maximum, 1000000000; \
             use 1000000000, the nearest that is exact",
        ),
        (
            "smooth 1/s burst=1000000001",
            "burst 1000000001 is above the maximum, 1000000000; use a smaller number",
        ),
        (
            "token-bucket 1/s burst=5 initial=6",
            "initial 6 is above the maximum, 5; a bucket cannot start with more than its burst, so use the burst or less",
        ),
        (
            "leaky-bucket 1/s capacity=0",
            "capacity 0 is below the minimum, 1; that would deny every call, use at least 1",
        ),
        (
            "pacer 1/s queue=1000000000001",
            "queue 1000000000001 is above the maximum, 1000000000000; use a smaller number",
        ),
        ("sliding-log 5/0s", "period 0s is below the minimum, 1us; use at least 1us"),
        ("sliding-log 5/3651d", "period 3651d is above the maximum, 3650d; use at most 3650d"),
        (
            "sliding-log 5/999999999999999d",
            "period 999999999999999d is above the maximum, 3650d; use at most 3650d",
        ),
        (
            "sliding-log 5/99999999999999999999us",
            "period 99999999999999999999us is above the maximum, 3650d; use at most 3650d",
        ),
        (
            "token-bucket 1/3650d burst=1000000000",
            "time to fill 3650000000000d is above the maximum, 36500d; use a smaller burst, or a faster rate",
        ),
        ("min-interval 3651d", "interval 3651d is above the maximum, 3650d; use at most 3650d"),
        ("min-interval 0ms", "interval 0s is below the minimum, 1us; use at least 1us"),
        (
            "token-bucket 1/d burst=36501",
            "time to fill 36501d is above the maximum, 36500d; use a smaller burst, or a faster rate",
        ),
        (
            "leaky-bucket 1/d capacity=36501",
            "time to drain 36501d is above the maximum, 36500d; use a smaller capacity, or a faster rate",
        ),
        (
            "pacer 1/d queue=36500",
            "time to drain the queue 36501d is above the maximum, 36500d; use a smaller queue, or a faster rate",
        ),
        (
            "sliding-log 10001/60s",
            "count 10001 is above the maximum, 10000; a log records every call, use sliding-window for a count this large",
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
        "token-bucket 1T/1ms burst=1T",
        "leaky-bucket 999999999000/s",
        "sliding-window 1T/3650d",
        "sliding-window 4294967296/s",
        "pacer 1T/min queue=1T",
        "fixed-window 1T/month",
        "concurrency 1T",
        "token-bucket 999999999/s",
        "sliding-log 10000/1us",
        "sliding-window 1000000000/3650d",
        "min-interval 1us",
        "pacer 1000000000/s queue=1000000000",
        "fixed-window 1000000000/year tz=Pacific/Kiritimati",
    ] {
        text.parse::<Limit>().unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn errors_escape_and_truncate_their_input() {
    assert_eq!(
        said("sliding-log 5/60s\u{1b}[31m"),
        format!("sliding-log 5/60s\\u{{1b}}[31m: unknown unit \"s\\u{{1b}}[31m\"; use {UNITS}")
    );
    let long = said(&"x".repeat(300));
    assert_eq!(
        long,
        format!(
            "{}…: a limit of 300 bytes is above the maximum, 256; write a shorter one, such as sliding-log 5/60s",
            "x".repeat(80)
        )
    );
    assert!(!said("a\nb\rc d").contains(['\n', '\r']));
    // What would turn or break the line is escaped too.
    assert!(said("sliding-log\u{202e} 5/60s").starts_with(r"sliding-log\u{202e} 5/60s: unknown algorithm"));
}

#[test]
fn a_start_is_strictly_rfc_3339() {
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
fn a_limiter_rejects_concurrency_limits() {
    let said = "concurrency 10 ttl=30s: concurrency grants leases, which checks cannot return; make a Semaphore of it, alone (over the network: RL.ACQUIRE)";
    let alone = Limiter::new("concurrency 10 ttl=30s").unwrap_err();
    let in_a_list = Limiter::new(["sliding-log 5/60s", "concurrency 10 ttl=30s"]).unwrap_err();
    assert_eq!([alone.to_string(), in_a_list.to_string()], [said, said]);
    let limiter = Limiter::new("sliding-log 5/60s").unwrap();
    assert_eq!(limiter.change("concurrency 10 ttl=30s").unwrap_err().to_string(), said);
    let store = MemoryStore::builder().build().unwrap();
    let shared = Limiter::builder("concurrency 10 ttl=30s").in_store(&store, "scope").build();
    assert_eq!(shared.unwrap_err().to_string(), said);
}
