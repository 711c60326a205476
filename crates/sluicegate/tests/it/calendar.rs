//! Calendar windows against an independent calculation: another time-zone library, asked for the
//! local date minute by minute. A window begins whenever a date appears that was not there before.

use chrono::{DateTime, Datelike as _, NaiveDate, Offset as _, TimeZone as _, Utc};
use chrono_tz::Tz;
use sluicegate::Limit;
use sluicegate_core::{Algorithm as _, AnyState, Span, Time, Window};

const MINUTE: i64 = 60;

/// The first instant of each window from `from` to `to`, in seconds, found by watching the local
/// date.
fn by_watching(zone: Tz, from: i64, to: i64, first_day: impl Fn(NaiveDate) -> NaiveDate) -> Vec<i64> {
    let date = |second: i64| {
        let moment = DateTime::from_timestamp(second, 0).unwrap();
        (moment + chrono::Duration::seconds(offset(zone, moment))).date_naive()
    };
    let mut latest = first_day(date(from));
    let mut starts = Vec::new();
    let mut second = from;
    while second <= to {
        let window = first_day(date(second));
        if window > latest {
            starts.push(second);
            latest = window;
        }
        second += MINUTE;
    }
    starts
}

fn offset(zone: Tz, moment: DateTime<Utc>) -> i64 {
    i64::from(zone.offset_from_utc_datetime(&moment.naive_utc()).fix().local_minus_utc())
}

/// The first instant of each window, found by asking a limit for its next window again and again.
fn by_limit(unit: &str, zone: &str, from: i64, to: i64) -> Vec<i64> {
    let limit: Limit =
        format!("fixed-window 1/{unit} tz={zone}").parse().unwrap_or_else(|error| panic!("{error}"));
    let made = limit.made_at(Time::EPOCH).unwrap();
    let next = |at: Time| made.next_window(&AnyState::default(), at);
    let time = |second: i64| Time::from_micros(u64::try_from(second).unwrap() * 1_000_000).unwrap();
    std::iter::successors(Some(next(time(from))), |at| Some(next(*at)))
        .take_while(|at| *at <= time(to))
        .inspect(|start| {
            // From its first to its last moment a window has these bounds.
            let window = Window { start: *start, end: next(*start) };
            let last = Time::from_micros(window.end.as_micros() - 1).unwrap();
            for at in [*start, start.saturating_add(Span::from_micros(1)), last] {
                assert_eq!(made.window(&AnyState::default(), at), Some(window), "{unit} {zone}");
            }
        })
        .map(|at| i64::try_from(at.as_micros() / 1_000_000).unwrap())
        .collect()
}

fn second(date: &str) -> i64 {
    date.parse::<DateTime<Utc>>().unwrap().timestamp()
}

fn monday(date: NaiveDate) -> NaiveDate {
    date - chrono::Duration::days(i64::from(date.weekday().num_days_from_monday()))
}

fn first_of_month(date: NaiveDate) -> NaiveDate {
    date.with_day(1).unwrap()
}

fn first_of_year(date: NaiveDate) -> NaiveDate {
    date.with_ordinal(1).unwrap()
}

fn agree(zone: &str, from: &str, to: &str) {
    let (from, to) = (second(from), second(to));
    let tz: Tz = zone.parse().unwrap();
    assert_eq!(by_limit("day", zone, from, to), by_watching(tz, from, to, |date| date), "days in {zone}");
    assert_eq!(by_limit("week", zone, from, to), by_watching(tz, from, to, monday), "weeks in {zone}");
    assert_eq!(
        by_limit("month", zone, from, to),
        by_watching(tz, from, to, first_of_month),
        "months in {zone}"
    );
    assert_eq!(by_limit("year", zone, from, to), by_watching(tz, from, to, first_of_year), "years in {zone}");
}

/// Days, weeks, months and years over a decade, where clocks change in all the ways they do.
#[test]
fn a_decade_of_windows_matches_the_local_dates() {
    for zone in [
        "America/New_York",
        // Midnight is skipped in spring and occurs twice in autumn.
        "America/Sao_Paulo",
        "Asia/Beirut",
        // Clocks went from 00:01 back to 23:01 the day before.
        "America/St_Johns",
        // Half an hour of daylight saving time.
        "Australia/Lord_Howe",
        // 2011-12-30 did not happen.
        "Pacific/Apia",
        // Daylight saving time is suspended for Ramadan.
        "Africa/Casablanca",
        "Asia/Kathmandu",
    ] {
        agree(zone, "2005-01-01T00:00:00Z", "2015-01-02T00:00:00Z");
    }
}

/// A place that crossed the date line in 1993, and one that set its clocks back at midnight.
#[test]
fn historic_oddities_match_too() {
    agree("Pacific/Kwajalein", "1993-06-01T00:00:00Z", "1993-12-31T00:00:00Z");
    agree("America/Havana", "1998-01-01T00:00:00Z", "2002-01-01T00:00:00Z");
    agree("Asia/Pyongyang", "2015-06-01T00:00:00Z", "2018-12-31T00:00:00Z");
    agree("UTC", "2023-01-01T00:00:00Z", "2025-01-01T00:00:00Z");
}

fn lengths(unit: &str, zone: &str, from: &str, to: &str) -> Vec<i64> {
    let starts = by_limit(unit, zone, second(from), second(to));
    starts.windows(2).map(|pair| (pair[1] - pair[0]) / 3_600).collect()
}

#[test]
fn days_have_their_actual_lengths() {
    // 2026-03-08 has 23 hours in New York, 2026-11-01 has 25.
    assert_eq!(
        lengths("day", "America/New_York", "2026-03-07T00:00:00Z", "2026-03-10T12:00:00Z"),
        [24, 23, 24]
    );
    assert_eq!(
        lengths("day", "America/New_York", "2026-10-31T00:00:00Z", "2026-11-03T12:00:00Z"),
        [24, 25, 24]
    );
    // In Apia 2011-12-29 was followed by 2011-12-31: each of these days had 24 hours, and none was
    // empty.
    assert_eq!(lengths("day", "Pacific/Apia", "2011-12-28T00:00:00Z", "2012-01-02T12:00:00Z"), [24; 5]);
}

#[test]
fn a_fixed_offset_has_days_of_24_hours() {
    let starts = by_limit("day", "+08:00", second("2026-11-15T00:00:00Z"), second("2026-11-17T00:00:00Z"));
    assert_eq!(starts, [second("2026-11-15T16:00:00Z"), second("2026-11-16T16:00:00Z")]);
    let starts = by_limit("day", "-03:30", second("2026-11-15T00:00:00Z"), second("2026-11-16T00:00:00Z"));
    assert_eq!(starts, [second("2026-11-15T03:30:00Z")]);
}

#[test]
fn calendars_span_the_whole_time_range() {
    for unit in ["day", "week", "month", "year"] {
        for zone in ["Asia/Shanghai", "America/New_York", "+14:00", "-12:00"] {
            let limit: Limit = format!("fixed-window 1/{unit} tz={zone}").parse().unwrap();
            let made = limit.made_at(Time::EPOCH).unwrap();
            for at in [Time::EPOCH, Time::MAX, Time::from_micros(Time::MAX.as_micros() - 1).unwrap()] {
                let mut state = AnyState::default();
                assert!(made.check(&mut state, at, 1).allowed(), "{limit}");
                assert!(!made.check(&mut state, at, 1).allowed(), "{limit} at {at:?}");
            }
        }
    }
}
