//! Calendar windows: the actual days, weeks, months and years of a time zone.
//!
//! A window begins at the first instant of its first day. Usually that is midnight. Where midnight
//! is skipped it is the instant after the gap, where it occurs twice it is the first. Days have
//! their actual length: 23 or 25 hours when clocks change, and a day that a place skipped when it
//! crossed the date line has no window at all.
//!
//! Boundaries never go back: where clocks are set back *over* midnight (from 00:01 to 23:01, as in
//! Newfoundland) the local date returns to yesterday for a while, but the new window has begun and
//! stays.
//!
//! The time-zone library is used only here: the core asks a `Calendar` where the next window
//! begins.

use crate::grammar::{letters, nearest};
use jiff::civil::{Date, Weekday};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneName};
use jiff::{Timestamp, ToSpan as _};
use sluicegate_core::Time;
use sluicegate_core::fixed_window::Calendar;
use std::fmt;

/// A unit of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CalendarUnit {
    /// A local day, also one of 23 or 25 hours.
    Day,
    /// Seven days from Monday.
    Week,
    /// A month.
    Month,
    /// A year.
    Year,
}

impl fmt::Display for CalendarUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
            CalendarUnit::Year => "year",
        })
    }
}

impl CalendarUnit {
    /// The first day of the unit that contains `date`.
    fn first_day(self, date: Date) -> Date {
        match self {
            CalendarUnit::Day => date,
            CalendarUnit::Week => {
                let days_in = date.weekday().since(Weekday::Monday);
                date.saturating_sub(i32::from(days_in).days())
            }
            CalendarUnit::Month => date.first_of_month(),
            CalendarUnit::Year => date.first_of_year(),
        }
    }

    /// The first day of the unit after the one that begins on `first`.
    fn following(self, first: Date) -> Option<Date> {
        let length = match self {
            CalendarUnit::Day => 1.day(),
            CalendarUnit::Week => 1.week(),
            CalendarUnit::Month => 1.month(),
            CalendarUnit::Year => 1.year(),
        };
        first.checked_add(length).ok()
    }
}

/// A time zone: a fixed offset from UTC, or a name in the time-zone database. Zones of one name are
/// equal.
#[derive(Clone, Debug)]
pub struct Zone {
    /// As the grammar writes it: `UTC`, `+08:00`, `Asia/Shanghai`.
    name: String,
    rules: TimeZone,
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl std::hash::Hash for Zone {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Zone {
    /// Coordinated universal time, the default zone of calendar units.
    pub fn utc() -> Zone {
        Zone { name: "UTC".to_owned(), rules: TimeZone::UTC }
    }

    /// The zone with this name, in any case, or at this offset: `Asia/Shanghai`, `+08:00`, `-0330`,
    /// `+9`.
    pub fn named(name: &str) -> Option<Zone> {
        if let Some(seconds) = offset_seconds(name) {
            let offset = Offset::from_seconds(seconds).ok()?;
            if seconds == 0 {
                return Some(Zone::utc());
            }
            let (sign, minutes) = (if seconds < 0 { '-' } else { '+' }, seconds.abs() / 60);
            let name = format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
            return Some(Zone { name, rules: TimeZone::fixed(offset) });
        }
        let zone = TimeZone::get(name).ok().filter(|zone| !zone.is_unknown())?;
        let name = zone.iana_name()?.to_owned();
        Some(if name == "UTC" { Zone::utc() } else { Zone { name, rules: zone } })
    }

    /// Returns the zone that an unknown name was meant to be, if one is near: `America/NewYork`,
    /// the city alone, or `UTC+8`, which is written `+08:00`.
    pub(crate) fn nearest(name: &str) -> Option<String> {
        // Shorter names are abbreviations, each one letter away from that of a far away place.
        const LETTERS_MIN: usize = 5;
        if let Some((utc, offset)) = name.split_at_checked(3)
            && ["utc", "gmt"].contains(&utc.to_ascii_lowercase().as_str())
        {
            return Zone::named(offset).map(|zone| zone.name);
        }
        if letters(name).count() < LETTERS_MIN {
            return None;
        }
        let zones: Vec<TimeZoneName<'_>> = jiff::tz::db().available().collect();
        let mut names = zones.iter().map(TimeZoneName::as_str);
        let city = |zone: &str| zone.rsplit('/').next().is_some_and(|city| letters(city).eq(letters(name)));
        let meant = nearest(name, names.clone()).or_else(|| names.find(|zone| city(zone)));
        meant.map(str::to_owned)
    }

    /// Returns `true` for UTC.
    pub fn is_utc(&self) -> bool {
        self.name == "UTC"
    }

    /// The first instant of a local date.
    fn first_instant(&self, date: Date) -> Option<Timestamp> {
        let midnight = date.to_datetime(jiff::civil::Time::midnight());
        match self.rules.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(midnight).ok(),
            // Midnight occurs twice: the first.
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(midnight).ok(),
            // Midnight is skipped: the day begins when the clocks jump, wherever in the gap
            // midnight is.
            AmbiguousOffset::Gap { after, .. } => {
                let before_the_jump = after.to_timestamp(midnight).ok()?.checked_sub(1.nanosecond()).ok()?;
                Some(self.rules.following(before_the_jump).next()?.timestamp())
            }
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Parses `+08:00`, `+0800`, `+08` or `+8` as seconds; `None` for anything else.
fn offset_seconds(text: &str) -> Option<i32> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match (digits.split_once(':'), digits.len()) {
        (Some((hours, minutes)), 5) if hours.len() == 2 => (hours, minutes),
        (None, 4) => digits.split_at_checked(2)?,
        (None, 1 | 2) => (digits, "0"),
        _ => return None,
    };
    let number = |text: &str| -> Option<i32> {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// The windows of a calendar unit in a zone, for the core.
#[derive(Debug)]
pub(crate) struct ZoneCalendar {
    unit: CalendarUnit,
    zone: Zone,
    name: String,
}

impl ZoneCalendar {
    pub(crate) fn new(unit: CalendarUnit, zone: Zone) -> ZoneCalendar {
        let name = format!("{unit} tz={zone}");
        ZoneCalendar { unit, zone, name }
    }

    /// Returns the first day of the window that contains `now`, and when that window ends.
    fn window(&self, now: Timestamp) -> Option<(Date, Timestamp)> {
        let mut first = self.unit.first_day(self.zone.rules.to_datetime(now).date());
        loop {
            let next = self.unit.following(first)?;
            let begins = self.zone.first_instant(next)?;
            // Not yet the next one where the local date went back over midnight, or where a whole
            // day was skipped: then it has already begun.
            if begins > now {
                return Some((first, begins));
            }
            first = next;
        }
    }
}

/// Converts a time, which cannot fail: calendars extend a century beyond the last [`Time`].
fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(time.as_micros()).ok()?).ok()
}

impl Calendar for ZoneCalendar {
    fn next_boundary(&self, now: Time) -> u64 {
        let end = timestamp(now).and_then(|now| Some(self.window(now)?.1));
        end.and_then(|end| u64::try_from(end.as_microsecond()).ok()).unwrap_or(u64::MAX)
    }

    fn last_boundary(&self, now: Time) -> u64 {
        let first = timestamp(now).and_then(|now| Some(self.window(now)?.0));
        let began = first.and_then(|first| self.zone.first_instant(first));
        // Negative before the epoch.
        began.and_then(|began| u64::try_from(began.as_microsecond()).ok()).unwrap_or(0)
    }

    fn name(&self) -> &str {
        &self.name
    }
}
