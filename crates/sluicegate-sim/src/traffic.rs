//! Traffic: calls in the order in which a limiter would meet them, from a workload, a trace or a
//! log.
//!
//! It is held in memory, 16 bytes per call and each key once, so that several limits can be tried
//! on the same calls, and so that the pictures know from the start how long it lasts.

mod clock;
pub mod csv;
pub mod log;
pub mod workload;

pub use clock::Clock;

use indexmap::IndexSet;
use sluicegate_core::{Span, Time};
use smallvec::SmallVec;
use std::fmt;
use std::io;

/// The default maximum number of calls. Each takes [`BYTES_A_CALL`].
pub const CALLS_MAX_DEFAULT: usize = 50_000_000;
/// The most calls that can be allowed: their numbers fit in 32 bits.
pub const CALLS_MAX: usize = 4_000_000_000;
/// The most that the costs of all calls add up to, so that no sum of them overflows.
pub const COSTS_MAX: u64 = 1 << 62;
/// What a call takes while limits are tried on it, as `--help` and the docs say.
pub const BYTES_A_CALL: usize = 52;
/// This many malformed lines are kept with their errors; the others are only counted.
const BROKEN_KEPT: usize = 5;

/// Earlier times are counted from zero rather than by the calendar: 1980.
const DATES_FROM: Time = Time::saturating_from_micros(315_532_800_000_000);

/// One call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// When.
    pub at: Time,
    /// Whose: the key's place in [`Traffic::key`].
    pub key: u32,
    /// How much.
    pub cost: u64,
}

/// Calls and their keys.
#[derive(Clone, Debug)]
pub struct Traffic {
    calls: Vec<Call>,
    keys: IndexSet<Key, foldhash::fast::RandomState>,
    clock: Clock,
    broken: Broken,
    sorted: u64,
    first: Time,
    last: Time,
    length: Span,
}

/// Most keys are this short and lie in the table itself.
type Key = SmallVec<[u8; 24]>;

/// Lines that are no calls.
#[derive(Clone, Default, Debug)]
pub struct Broken {
    /// How many.
    pub count: u64,
    /// The first few, with what is wrong with them.
    pub first: Vec<BrokenLine>,
}

/// A malformed line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokenLine {
    /// Counted from 1.
    pub line: u64,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub advice: String,
}

impl fmt::Display for BrokenLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; {}", self.line, self.problem, self.advice)
    }
}

/// Why there is no traffic.
#[derive(Debug)]
pub enum TrafficError {
    /// The input could not be read.
    Io(io::Error),
    /// This line is malformed, and malformed lines are not skipped.
    Line(BrokenLine),
    /// There are more calls than this.
    TooMany(usize),
    /// The costs add up to more than [`COSTS_MAX`].
    TooCostly,
    /// There is not a single call, and why.
    None(String),
    /// A field is asked for that there cannot be, and which ones there are.
    Field(String),
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrafficError::Io(error) => write!(f, "the calls cannot be read: {error}; check the file"),
            TrafficError::Line(line) => line.fmt(f),
            TrafficError::TooMany(most) => {
                write!(f, "there are more than {most} calls; take a part of them, or allow for more")
            }
            TrafficError::TooCostly => {
                write!(
                    f,
                    "the costs add up to more than {COSTS_MAX}; take a part of the calls, or a larger unit"
                )
            }
            TrafficError::None(why) | TrafficError::Field(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for TrafficError {}

/// What to do with input that is not as it should be.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Whether a single broken line is one too many.
    pub strict: bool,
    /// The most calls.
    pub calls_max: usize,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading { strict: false, calls_max: CALLS_MAX_DEFAULT }
    }
}

/// Puts calls together.
pub(crate) struct Collector {
    traffic: Traffic,
    reading: Reading,
    /// The sum of all costs.
    costs: u64,
    /// From when to when it lasts, if that is more than from the first call to the last.
    extent: Option<(Time, Time)>,
}

impl Collector {
    pub(crate) fn new(clock: Clock, reading: Reading) -> Collector {
        let traffic = Traffic {
            calls: Vec::new(),
            keys: IndexSet::default(),
            clock,
            broken: Broken::default(),
            sorted: 0,
            first: Time::EPOCH,
            last: Time::EPOCH,
            length: Span::ZERO,
        };
        let reading = Reading { calls_max: reading.calls_max.min(CALLS_MAX), ..reading };
        Collector { traffic, reading, costs: 0, extent: None }
    }

    /// The place of a key, which is made if it is new.
    pub(crate) fn key(&mut self, name: &[u8]) -> Result<u32, TrafficError> {
        let keys = &mut self.traffic.keys;
        let place = match keys.get_index_of(name) {
            Some(place) => place,
            None => keys.insert_full(Key::from_slice(name)).0,
        };
        u32::try_from(place).map_err(|_| TrafficError::TooMany(self.reading.calls_max))
    }

    pub(crate) fn push(&mut self, call: Call) -> Result<(), TrafficError> {
        if self.traffic.calls.len() >= self.reading.calls_max {
            return Err(TrafficError::TooMany(self.reading.calls_max));
        }
        self.costs = self
            .costs
            .checked_add(call.cost)
            .filter(|sum| *sum <= COSTS_MAX)
            .ok_or(TrafficError::TooCostly)?;
        self.traffic.calls.push(call);
        Ok(())
    }

    /// Skips a malformed line, unless every line must be a call.
    pub(crate) fn broken(&mut self, line: BrokenLine) -> Result<(), TrafficError> {
        if self.reading.strict {
            return Err(TrafficError::Line(line));
        }
        self.traffic.broken.count += 1;
        if self.traffic.broken.first.len() < BROKEN_KEPT {
            self.traffic.broken.first.push(line);
        }
        Ok(())
    }

    /// Tells times from the beginning of time if they are too close to it to be dates.
    pub(crate) fn guess_clock(&mut self) {
        if self.traffic.calls.iter().all(|call| call.at < DATES_FROM) {
            self.traffic.clock = Clock::Since(Time::EPOCH);
        }
    }

    /// Puts the calls in the order of their times, those of one time as they came, and counts those
    /// that were late.
    pub(crate) fn sort(&mut self) {
        let mut latest = Time::EPOCH;
        for call in &self.traffic.calls {
            self.traffic.sorted += u64::from(call.at < latest);
            latest = latest.max(call.at);
        }
        if self.traffic.sorted > 0 {
            self.merge();
        }
    }

    /// The traffic lasts at least from `from` up to but not including `end`, even if no call comes
    /// in that time.
    pub(crate) fn lasts(&mut self, from: Time, end: Time) {
        let (earliest, latest) = self.extent.unwrap_or((from, end));
        self.extent = Some((earliest.min(from), latest.max(end)));
    }

    /// Puts the calls of several sources in the order of their times, those of one time in the
    /// order of the sources.
    pub(crate) fn merge(&mut self) {
        self.traffic.calls.sort_by_key(|call| call.at);
        self.number_keys();
    }

    /// Numbers the keys in the order of their first calls.
    fn number_keys(&mut self) {
        let traffic = &mut self.traffic;
        let mut numbers = vec![None; traffic.keys.len()];
        let mut keys = IndexSet::with_capacity_and_hasher(traffic.keys.len(), traffic.keys.hasher().clone());
        for call in &mut traffic.calls {
            let Some(number) = numbers.get_mut(call.key as usize) else { continue };
            let fresh = || {
                let name = traffic.keys.get_index(call.key as usize).cloned().unwrap_or_default();
                // Cannot fail: there are no more keys than before.
                u32::try_from(keys.insert_full(name).0).unwrap_or(call.key)
            };
            call.key = *number.get_or_insert_with(fresh);
        }
        traffic.keys = keys;
    }

    /// The traffic, unless there is none: then `hint` says what to do.
    pub(crate) fn finish(mut self, hint: &str) -> Result<Traffic, TrafficError> {
        let times = || self.traffic.calls.iter().map(|call| call.at);
        if let (Some(first), Some(last)) = (times().min(), times().max()) {
            let (begin, end) = self.extent.unwrap_or((first, last));
            let before_the_end = Time::saturating_from_micros(end.as_micros().saturating_sub(1));
            let last = if self.extent.is_some() { before_the_end.max(begin) } else { last };
            self.traffic = Traffic { first: begin, last, length: end.since(begin), ..self.traffic };
            return Ok(self.traffic);
        }
        Err(match self.traffic.broken.first.into_iter().next() {
            // All of them are broken, and the first shows how.
            Some(line) => TrafficError::Line(line),
            None => TrafficError::None(format!("there is not a single call; {hint}")),
        })
    }
}

impl Traffic {
    /// The calls, in the order in which they are decided.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// How many keys there are. Each has called.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The name of the key at that place. They are in the order of their first calls.
    pub fn key(&self, place: u32) -> &[u8] {
        usize::try_from(place).ok().and_then(|place| self.keys.get_index(place)).map_or(&[], |key| key)
    }

    /// The place of the key with that name.
    pub fn key_named(&self, name: &[u8]) -> Option<u32> {
        self.keys.get_index_of(name).and_then(|place| u32::try_from(place).ok())
    }

    /// How its times are printed.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The lines that were no calls.
    pub fn broken(&self) -> &Broken {
        &self.broken
    }

    /// How many calls stood behind a later one in a log, and were put in their place.
    pub fn sorted(&self) -> u64 {
        self.sorted
    }

    /// How long it lasts.
    pub fn length(&self) -> Span {
        self.length
    }

    /// When it begins: with the first call, or when a workload does.
    pub fn first(&self) -> Time {
        self.first
    }

    /// When it ends: with the last call, or a microsecond before a workload does.
    pub fn last(&self) -> Time {
        self.last
    }
}
