//! How a limit is told to the scripts, and how what they tell of a key is read.
//!
//! What can be prepared is prepared here, in whole numbers of any size: a cost as the time that it takes to come back, with its
//! remainder. A script adds and compares.

use crate::script::{Script, Trip};
use crate::scripts;
use sluicegate::core::bounds::CENTURY;
use sluicegate::core::leaky_bucket::LeakyBucket;
use sluicegate::core::min_interval::MinInterval;
use sluicegate::core::pacer::Pacer;
use sluicegate::core::pile::Times;
use sluicegate::core::sliding_log::Log;
use sluicegate::core::time::YEAR;
use sluicegate::core::token_bucket::TokenBucket;
use sluicegate::core::{Algorithm as _, AnyLimit, AnyState, Cell, CellLimit, Rate};
use sluicegate::{CalendarUnit, Initial, Limit, Span, Spec, Time, WindowSpec};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Every whole number below this is exact in a script.
pub(crate) const EXACT: u64 = 1 << 53;

/// The version of what is written, and the sign after it. A script hands back what begins otherwise.
const VERSION: &str = "1 ";

/// How long a bucket's state is without its tag.
const BUCKET: usize = 20;

/// A log of so few calls is read as a whole, which is quicker. (With the room for more it takes some 3 KB.)
const SHORT_LOG: u32 = 200;

/// How many arguments a limit has in a script for limits of any kind, its letter included.
const BLOCK: usize = 15;

/// One limit as the scripts know it.
pub(crate) struct Shape {
    pub(crate) limit: AnyLimit,
    kind: Kind,
    /// The version and the numbers that a state is written in.
    tag: String,
    /// Names what its states are, in the names of keys.
    pub(crate) letter: char,
    /// The latest time at which it can be asked.
    pub(crate) latest: Time,
}

enum Kind {
    Bucket { rate: Rate, burst: u32, is_paced: bool, initial: Option<(Time, u32)> },
    FixedWindow { count: u32, windows: Windows },
    SlidingWindow { rate: Rate },
    SlidingLog { rate: Rate, count_all: bool },
}

enum Windows {
    Aligned { start: Time, period: u64 },
    First { period: u64 },
    Calendar { unit: CalendarUnit, known: Mutex<Bounds> },
}

/// The windows of a calendar around some time: when one began, when it ends, and when the next one ends.
#[derive(Clone, Copy, Default)]
struct Bounds([u64; 3]);

/// Whole microseconds and parts of one.
struct Length {
    whole: u64,
    part: u64,
}

/// `units * period / count`, exact below [`EXACT`] and only known to be longer beyond.
fn time_for(rate: Rate, units: u32) -> Length {
    let (count, period) = (u128::from(rate.count()), u128::from(rate.period().as_micros()));
    let parts = u128::from(units) * period;
    let whole = u64::try_from(parts / count).unwrap_or(u64::MAX).min(EXACT);
    Length { whole, part: u64::try_from(parts % count).unwrap_or(0) }
}

impl Shape {
    /// How the scripts know a limit that is made at `start`. That matters to a bucket with `initial` only; without it such a
    /// limit cannot be shared, and there is none.
    pub(crate) fn new(limit: &Limit, start: Option<Time>) -> Option<Shape> {
        let bucket = |rate: Rate, burst, is_paced, initial| {
            let tag = format!("{VERSION}{}/{} ", rate.count(), rate.period().as_micros());
            (tag, Kind::Bucket { rate, burst, is_paced, initial })
        };
        let (letter, (tag, kind)) = match limit.spec() {
            Spec::TokenBucket { rate, burst, initial } => {
                let initial = match initial {
                    None => None,
                    Some(Initial { tokens, start: written }) => Some((written.or(start)?, burst - tokens)),
                };
                ('t', bucket(*rate, *burst, false, initial.filter(|(_, missing)| *missing > 0)))
            }
            Spec::LeakyBucket { rate, capacity } => ('l', bucket(*rate, *capacity, false, None)),
            // A limit's numbers have been checked, so there is such a rate.
            Spec::MinInterval { interval } => ('m', bucket(Rate::new(1, *interval).ok()?, 1, false, None)),
            Spec::Pacer { rate, queue } => ('p', bucket(*rate, queue + 1, true, None)),
            Spec::FixedWindow { count, windows } => ('f', fixed_window(*count, windows, limit)),
            // No script knows it yet.
            Spec::Smooth { .. } => return None,
            Spec::SlidingWindow { rate } => {
                let tag = format!("{VERSION}{} ", rate.period().as_micros());
                ('s', (tag, Kind::SlidingWindow { rate: *rate }))
            }
            Spec::SlidingLog { rate, count_all } => {
                ('g', (String::new(), Kind::SlidingLog { rate: *rate, count_all: *count_all }))
            }
        };
        let limit = limit.made_at(start.unwrap_or(Time::EPOCH));
        let latest = Time::saturating_from_micros(EXACT - 1 - kind.reach());
        Some(Shape { limit, kind, tag, letter, latest })
    }

    /// The script of a check under this limit alone.
    pub(crate) fn check(&self) -> &'static LazyLock<Script> {
        match self.kind {
            Kind::Bucket { .. } => &scripts::CHECK_BUCKET,
            Kind::FixedWindow { .. } => &scripts::CHECK_FIXED_WINDOW,
            Kind::SlidingWindow { .. } => &scripts::CHECK_SLIDING_WINDOW,
            Kind::SlidingLog { rate, count_all: false } if rate.count() <= SHORT_LOG => {
                &scripts::CHECK_SHORT_SLIDING_LOG
            }
            Kind::SlidingLog { count_all: false, .. } => &scripts::CHECK_SLIDING_LOG,
            Kind::SlidingLog { count_all: true, .. } => &scripts::CHECK_SLIDING_LOG_ALL,
        }
    }

    /// Whether even a denied call counts.
    pub(crate) fn counts_denied(&self) -> bool {
        matches!(self.kind, Kind::SlidingLog { count_all: true, .. })
    }

    /// What a receipt's charges are written in.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    /// Adds what the script of a check under this limit alone needs: numbers are packed, which is quicker to read there.
    pub(crate) fn add_check(&self, trip: &mut Trip, cost: u32, now: Option<Time>) {
        match &self.kind {
            Kind::Bucket { rate, burst, initial, .. } => {
                let (fill, due) = (time_for(*rate, *burst), time_for(*rate, cost));
                trip.arg(&self.tag);
                trip.arg(&*Packed::new().u32(rate.count()).length(&fill).length(&due).0);
                if let Some((start, missing)) = initial {
                    let missing = time_for(*rate, *missing);
                    trip.arg(&*Packed::new().f64(start.as_micros()).length(&missing).0);
                }
            }
            Kind::FixedWindow { count, windows } => {
                trip.arg(&self.tag);
                let packed = Packed::new().u32(*count).u32(cost);
                match windows {
                    Windows::Aligned { start, period } => {
                        trip.arg(&*packed.f64(*period).f64(start.as_micros()).0);
                    }
                    Windows::First { period } => {
                        trip.arg(&*packed.f64(*period).none().0);
                    }
                    Windows::Calendar { .. } => {
                        let Bounds([began, ends, next_ends]) = self.bounds(now);
                        trip.arg(&*packed.f64(0).none().0);
                        trip.arg(&*Packed::new().f64(began).f64(ends).f64(next_ends).0);
                    }
                }
            }
            Kind::SlidingLog { rate, count_all: false } => {
                let packed = Packed::new().u32(rate.count()).u32(cost).f64(rate.period().as_micros());
                trip.arg(&*packed.0);
            }
            Kind::SlidingWindow { .. } | Kind::SlidingLog { count_all: true, .. } => {
                self.add_arguments(trip, cost, now);
            }
        }
    }

    /// Adds what the functions of the limit's own script need. How many arguments that were.
    fn add_arguments(&self, trip: &mut Trip, cost: u32, now: Option<Time>) -> usize {
        match &self.kind {
            Kind::Bucket { rate, burst, initial, .. } => {
                let (fill, due) = (time_for(*rate, *burst), time_for(*rate, cost));
                trip.arg(&self.tag)
                    .arg(rate.count())
                    .arg(fill.whole)
                    .arg(fill.part)
                    .arg(due.whole)
                    .arg(due.part);
                let Some((start, missing)) = initial else { return 6 };
                let missing = time_for(*rate, *missing);
                trip.arg(start.as_micros()).arg(missing.whole).arg(missing.part);
                9
            }
            Kind::FixedWindow { count, windows } => {
                trip.arg(&self.tag).arg(*count).arg(cost);
                match windows {
                    Windows::Aligned { start, period } => {
                        trip.arg(*period).arg(start.as_micros());
                        5
                    }
                    Windows::First { period } => {
                        trip.arg(*period).arg("first");
                        5
                    }
                    Windows::Calendar { .. } => {
                        let Bounds([began, ends, next_ends]) = self.bounds(now);
                        trip.arg("").arg(began).arg(ends).arg(next_ends);
                        7
                    }
                }
            }
            Kind::SlidingWindow { rate } => {
                trip.arg(&self.tag).arg(rate.count()).arg(cost).arg(rate.period().as_micros());
                4
            }
            Kind::SlidingLog { rate, count_all } => {
                trip.arg(rate.count()).arg(cost).arg(rate.period().as_micros());
                trip.arg(if *count_all { "all" } else { "" });
                4
            }
        }
    }

    /// Adds what a script for limits of any kind needs.
    pub(crate) fn add_block(&self, trip: &mut Trip, cost: u32, now: Option<Time>) {
        let letter = match self.kind {
            Kind::Bucket { .. } => "b",
            Kind::FixedWindow { .. } => "f",
            Kind::SlidingWindow { .. } => "s",
            Kind::SlidingLog { .. } => "l",
        };
        trip.arg(letter);
        let mut added = 1 + self.add_arguments(trip, cost, now);
        if let Kind::Bucket { rate, burst, is_paced, .. } = &self.kind {
            for _ in added..10 {
                trip.arg("");
            }
            let interval = time_for(*rate, 1);
            trip.arg(interval.whole).arg(interval.part).arg(cost).arg(*burst);
            trip.arg(if *is_paced { "paced" } else { "" });
            added = BLOCK;
        }
        for _ in added..BLOCK {
            trip.arg("");
        }
    }

    /// Learns the windows of the calendar around a time of the store's.
    pub(crate) fn learn_windows(&self, now: Time) {
        if let Kind::FixedWindow { windows: Windows::Calendar { known, .. }, .. } = &self.kind {
            *known.lock().unwrap_or_else(PoisonError::into_inner) = self.bounds_at(now);
        }
    }

    /// The windows around the caller's time, or those that were learned last.
    fn bounds(&self, now: Option<Time>) -> Bounds {
        match (now, &self.kind) {
            (Some(now), _) => self.bounds_at(now),
            (None, Kind::FixedWindow { windows: Windows::Calendar { known, .. }, .. }) => {
                *known.lock().unwrap_or_else(PoisonError::into_inner)
            }
            (None, _) => Bounds::default(),
        }
    }

    fn bounds_at(&self, now: Time) -> Bounds {
        const DAY: u64 = YEAR / 365;
        let Kind::FixedWindow { windows: Windows::Calendar { unit, .. }, .. } = &self.kind else {
            return Bounds::default();
        };
        // A window of the calendar is never longer than this.
        let longest = match unit {
            CalendarUnit::Day => 2 * DAY,
            CalendarUnit::Week => 9 * DAY,
            CalendarUnit::Month => 33 * DAY,
            CalendarUnit::Year => 368 * DAY,
        };
        let end_after = |time: Time| self.limit.next_window(&AnyState::default(), time);
        let mut began = Time::saturating_from_micros(now.as_micros().saturating_sub(longest));
        while end_after(began) <= now && end_after(began) > began {
            began = end_after(began);
        }
        let ends = end_after(now);
        Bounds([began.as_micros(), ends.as_micros(), end_after(ends).as_micros()])
    }

    /// The state that a script tells of.
    pub(crate) fn read(&self, told: &Told, now: Time, keeps_time: bool) -> Option<AnyState> {
        match (&self.kind, told) {
            (Kind::SlidingLog { .. }, Told::State(text)) => log(text),
            (Kind::SlidingLog { .. }, Told::Nothing) => Some(AnyState::default()),
            (_, Told::Nothing) => Some(AnyState::Cell(Cell::UNSEEN)),
            (_, Told::State(state)) => match state.strip_suffix(self.tag.as_bytes()) {
                Some(packed) => Some(AnyState::Cell(self.cell(packed, None)?.0)),
                // Only a peek sees one: what would charge has it written anew first.
                None => Some(AnyState::Cell(self.adopted(state, now, keeps_time)?.0)),
            },
        }
    }

    /// The cell in a state without its tag, and of a bucket when it last changed. A bucket may have been written at another rate.
    fn cell(&self, packed: &[u8], written_at: Option<Rate>) -> Option<(Cell, u64)> {
        let mut packed = Unpacked(packed);
        let at = packed.f64()?;
        let cell = match self.kind {
            Kind::Bucket { rate, .. } => {
                let latest = packed.f64()?;
                let part = packed.u32().filter(|part| *part < written_at.unwrap_or(rate).count())?;
                (Cell { at, a: part, b: 1 }, latest)
            }
            Kind::FixedWindow { .. } => (Cell { at, a: packed.u32()?, b: 0 }, 0),
            Kind::SlidingWindow { .. } => (Cell { at, a: packed.u32()?, b: packed.u32()? }, 0),
            Kind::SlidingLog { .. } => return None,
        };
        packed.0.is_empty().then_some(cell)
    }

    /// What a bucket's state in other numbers says in these, and when it last changed. `None` if it cannot be read: it was
    /// written by a version that is newer, or by nobody of ours.
    fn adopted(&self, old: &[u8], now: Time, keeps_time: bool) -> Option<(Cell, u64)> {
        let (packed, tag) = old.split_at_checked(BUCKET)?;
        let numbers = std::str::from_utf8(tag).ok()?.strip_prefix(VERSION)?.strip_suffix(' ')?;
        let (count, period) = numbers.split_once('/')?;
        let rate = Rate::new(count.parse().ok()?, Span::from_micros(period.parse().ok()?)).ok()?;
        let before = self.with_rate(rate)?;
        let (cell, latest) = self.cell(packed, Some(rate))?;
        let mut state = AnyState::Cell(cell);
        if keeps_time {
            self.limit.adopt_time(&before, &mut state);
        } else {
            self.limit.adopt(&before, &mut state, Times { now, latest: Time::from_micros(latest)? });
        }
        match state {
            AnyState::Cell(cell) => Some((cell, latest)),
            AnyState::Log(_) => None,
        }
    }

    /// A bucket's state in other numbers written in these, and when it has recovered.
    pub(crate) fn reread(&self, old: &[u8], now: Time, keeps_time: bool) -> Option<(Vec<u8>, u64)> {
        let (Cell { at, a, .. }, latest) = self.adopted(old, now, keeps_time)?;
        let packed = Packed::new().f64(at).f64(latest).u32(a);
        // While unseen keys are still filling, one that has called is not forgotten.
        let filled = match &self.kind {
            Kind::Bucket { rate, initial: Some((start, missing)), .. } => {
                start.as_micros() + time_for(*rate, *missing).whole
            }
            _ => 0,
        };
        Some(([&packed.0, self.tag.as_bytes()].concat(), at.max(filled)))
    }

    /// The same kind of bucket at another rate. How much it holds does not matter to what is read.
    fn with_rate(&self, rate: Rate) -> Option<AnyLimit> {
        let AnyLimit::Cell(limit) = &self.limit else { return None };
        Some(AnyLimit::Cell(match limit {
            CellLimit::TokenBucket(_) => CellLimit::TokenBucket(TokenBucket::new(rate, 1).ok()?),
            CellLimit::LeakyBucket(_) => CellLimit::LeakyBucket(LeakyBucket::new(rate, 1).ok()?),
            CellLimit::MinInterval(_) => CellLimit::MinInterval(MinInterval::new(rate.period()).ok()?),
            CellLimit::Pacer(_) => CellLimit::Pacer(Pacer::new(rate, 0).ok()?),
            CellLimit::FixedWindow(_) | CellLimit::SlidingWindow(_) | CellLimit::Smooth(_) => return None,
        }))
    }
}

fn fixed_window(count: u32, windows: &WindowSpec, limit: &Limit) -> (String, Kind) {
    let (name, windows) = match windows {
        WindowSpec::Aligned { start, period } => {
            let (start, period) = (*start, period.as_micros());
            (format!("{period}@{}", start.as_micros()), Windows::Aligned { start, period })
        }
        WindowSpec::First { period } => {
            let period = period.as_micros();
            (format!("{period}@first"), Windows::First { period })
        }
        WindowSpec::Calendar { unit, .. } => {
            // The canonical text says the unit and the zone: `fixed-window 1/day tz=Asia/Shanghai`.
            let text = limit.to_string();
            let name = text.split_once('/').map_or(text.clone(), |(_, windows)| windows.replace(' ', ","));
            (name, Windows::Calendar { unit: *unit, known: Mutex::default() })
        }
    };
    (format!("{VERSION}{name} "), Kind::FixedWindow { count, windows })
}

impl Kind {
    /// How far beyond now a moment can lie that a script has to reckon with.
    fn reach(&self) -> u64 {
        match self {
            Kind::Bucket { rate, burst, .. } => time_for(*rate, *burst).whole + CENTURY.as_micros() + 2,
            Kind::FixedWindow { windows, .. } => match windows {
                Windows::Aligned { period, .. } | Windows::First { period } => *period,
                Windows::Calendar { .. } => 3 * YEAR,
            },
            Kind::SlidingWindow { rate } | Kind::SlidingLog { rate, .. } => 2 * rate.period().as_micros(),
        }
    }
}

/// What a script tells of one state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// The key has never called, or has been forgotten.
    Nothing,
    /// A state as it is written; of a log, what matters of it.
    State(Vec<u8>),
}

/// A log of which only what matters is told, in slots: the one before the oldest call that counts, the last one, and those that
/// an answer rests on.
fn log(slots: &[u8]) -> Option<AnyState> {
    const SLOT: usize = 13;
    let read = |slot: &[u8]| {
        let (at, total) = slot.split_at_checked(7)?;
        Some((little_endian(at), little_endian(total)))
    };
    let mut slots = slots.chunks(SLOT).map(|slot| read(slot).filter(|_| slot.len() == SLOT));
    let ((_, base), (latest, total)) = (slots.next()??, slots.next()??);
    let entry = |slot: Option<(u64, u64)>| {
        let (at, total) = slot?;
        Some((Time::from_micros(at)?, total.checked_sub(base)?))
    };
    let mut entries: Vec<(Time, u64)> = slots.map(entry).collect::<Option<_>>()?;
    // The last one is the newest, unless it was given back and so counts nothing.
    let (latest, used) = entry(Some((latest, total)))?;
    if entries.last().map_or(0, |(_, total)| *total) < used {
        entries.push((latest, used));
    }
    Some(AnyState::Log(Box::new(Log::of(latest, entries))))
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Numbers as `struct.unpack` reads them: 4 bytes, or a double.
struct Packed(Vec<u8>);

impl Packed {
    fn new() -> Packed {
        Packed(Vec::with_capacity(32))
    }

    fn u32(mut self, number: u32) -> Packed {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// A whole number up to [`EXACT`].
    #[allow(clippy::cast_precision_loss, reason = "exact: see above")]
    fn f64(mut self, number: u64) -> Packed {
        self.0.extend_from_slice(&(number as f64).to_le_bytes());
        self
    }

    fn length(self, Length { whole, part }: &Length) -> Packed {
        // Cannot be cut: a part is below the count.
        self.f64(*whole).u32(u32::try_from(*part).unwrap_or(u32::MAX))
    }

    /// -1, for what is not there.
    fn none(mut self) -> Packed {
        self.0.extend_from_slice(&(-1.0_f64).to_le_bytes());
        self
    }
}

/// What is left to be read of numbers that `struct.pack` has written.
struct Unpacked<'a>(&'a [u8]);

impl Unpacked<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    /// A whole number below [`EXACT`]; anything else is not of ours.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "checked"
    )]
    fn f64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        let number = f64::from_le_bytes(*number);
        ((0.0..EXACT as f64).contains(&number) && number.fract() == 0.0).then_some(number as u64)
    }
}
