//! Limits as text and as data: one line, the same everywhere.
//!
//! A [`Limit`] is parsed from text or built from numbers ([`typed`]), prints as its canonical text,
//! and shows its parts as a [`Spec`].
//!
//! ```text
//! token-bucket 30/60s burst=15
//! algorithm    measure options
//! ```
//!
//! `A + B` is a list of limits that must all allow a call.
//!
//! `parse` reads a text, `print` writes the canonical form, and `Limit::made_at` turns a limit into
//! what the core decides with.

mod error;
mod list;
mod parse;
pub(crate) mod print;
mod share;
pub mod typed;

pub use crate::calendar::{CalendarUnit, Zone};
pub use error::LimitError;
pub use parse::{LIMIT_LEN_MAX, LIMITS_MAX, LIST_LEN_MAX};
pub use sluicegate_core::Rate;
pub use sluicegate_core::smooth::{ColdFactor, WarmUp};
pub use typed::{per_day, per_hour, per_minute, per_second};

use crate::calendar::ZoneCalendar;
use sluicegate_core::bounds::{LOG_COUNT_MAX, OutOfBounds};
use sluicegate_core::concurrency::Concurrency;
use sluicegate_core::fixed_window::FixedWindow;
use sluicegate_core::leaky_bucket::LeakyBucket;
use sluicegate_core::min_interval::MinInterval;
use sluicegate_core::pacer::Pacer;
use sluicegate_core::sliding_log::SlidingLog;
use sluicegate_core::sliding_window::SlidingWindow;
use sluicegate_core::smooth::Smooth;
use sluicegate_core::time::{DAY, YEAR};
use sluicegate_core::token_bucket::TokenBucket;
use sluicegate_core::utc_ahead::UtcAhead;
use sluicegate_core::{Algorithm as _, AnyLimit, CellLimit, Span, Time};
use std::sync::Arc;

/// An algorithm with its parameters, all within bounds.
///
/// Equal limits print the same canonical text, and that text parses to an equal limit.
#[derive(Clone, Debug)]
pub struct Limit {
    spec: Spec,
    /// Built with the limit, so that returning it later cannot fail.
    made: Made,
}

/// The limit as the core decides by it.
#[derive(Clone, Debug)]
enum Made {
    Check(AnyLimit),
    Lease(Concurrency),
}

impl PartialEq for Limit {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Eq for Limit {}

impl std::hash::Hash for Limit {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.spec.hash(state);
    }
}

/// A limit as data.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Spec {
    /// `token-bucket COUNT/PERIOD [burst=] [initial=] [start=]`
    TokenBucket {
        /// The refill rate.
        rate: Rate,
        /// The most tokens it holds.
        burst: u64,
        /// What an unseen key holds, if not `burst`.
        initial: Option<Initial>,
    },
    /// `leaky-bucket COUNT/PERIOD [capacity=]`
    LeakyBucket {
        /// The rate at which it leaks.
        rate: Rate,
        /// The most it holds.
        capacity: u64,
    },
    /// `min-interval DURATION`
    MinInterval {
        /// The least time between two allowed calls.
        interval: Span,
    },
    /// `pacer COUNT/PERIOD [queue=]`
    Pacer {
        /// The rate at which calls leave.
        rate: Rate,
        /// The most calls that are queued.
        queue: u64,
    },
    /// `fixed-window COUNT/PERIOD [start=] [tz=]`
    FixedWindow {
        /// The cost that each window admits.
        count: u64,
        /// Where windows begin and end.
        windows: WindowSpec,
    },
    /// `sliding-log COUNT/PERIOD [count=all]`
    SlidingLog {
        /// The cost that any period admits.
        rate: Rate,
        /// Whether denied calls count too.
        count_all: bool,
    },
    /// `sliding-window COUNT/PERIOD`
    SlidingWindow {
        /// The cost that any period admits, as an estimate.
        rate: Rate,
    },
    /// `smooth COUNT/PERIOD [warmup=] [cold=] [burst=] [initial=] [start=]`
    Smooth {
        /// The rate at which permits are issued.
        rate: Rate,
        /// The warm-up, if there is one.
        warm_up: Option<WarmUp>,
        /// The most permits stored, if not one second's worth or that of the warm-up.
        burst: Option<u64>,
        /// The permits stored for an unseen key, if not 0 or, with a warm-up, the most.
        initial: Option<u64>,
        /// When it starts; by default the moment the limiter was created.
        start: Option<Time>,
    },
    /// `concurrency COUNT [ttl=]`
    Concurrency {
        /// The most that is held at once.
        count: u64,
        /// When a lease expires that is neither released nor renewed. Without a ttl it is held
        /// until it is released.
        ttl: Option<Span>,
    },
}

/// What an unseen key holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Initial {
    /// The tokens at `start`.
    pub tokens: u64,
    /// Since when the bucket has been filling; by default the moment the limiter was created.
    pub start: Option<Time>,
}

/// Where the windows of `fixed-window` begin and end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WindowSpec {
    /// Aligned to a moment, by default the Unix epoch, and closed before it.
    Aligned {
        /// When the first window begins.
        start: Time,
        /// The length of each window.
        period: Span,
    },
    /// Opened by the first allowed call.
    First {
        /// The length of each window.
        period: Span,
    },
    /// A calendar unit in a time zone. (A day in UTC is `Aligned`.)
    Calendar {
        /// The unit.
        unit: CalendarUnit,
        /// The time zone.
        zone: Zone,
    },
}

/// Bounds that an application may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// The largest count of a `sliding-log`, which keeps 16 bytes per call. 10,000 by default, and
    /// at most.
    pub log_count_max: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { log_count_max: LOG_COUNT_MAX }
    }
}

impl Limit {
    /// Reads a limit with bounds other than the default ones. `text.parse()` is the usual way.
    ///
    /// # Errors
    /// If the text is not a limit or a number is out of bounds: one line that points at the word.
    pub fn parse(text: &str, bounds: Bounds) -> Result<Limit, LimitError> {
        parse::limit(text, bounds)
    }

    /// Reads a list of limits that must all allow a call, `A + B`, or a single limit. The list has
    /// at most [`LIMITS_MAX`] limits of at most [`LIMIT_LEN_MAX`] bytes each.
    ///
    /// ```
    /// use sluicegate::Limit;
    ///
    /// let limits = Limit::parse_list("token-bucket 10/s burst=50 + fixed-window 1_000/day")?;
    /// assert_eq!(Limit::list_text(&limits), "token-bucket 10/s burst=50 + fixed-window 1000/d");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    ///
    /// # Errors
    /// If a text is not a limit, a number is out of bounds, or there are too many limits: one line
    /// that points at the word in the whole text. [`Limit::check_list`] says whether the limits go
    /// together.
    pub fn parse_list(text: &str) -> Result<Vec<Limit>, LimitError> {
        parse::list(text, Bounds::default())
    }

    /// The canonical text of a list of limits, `A + B`. [`Limit::parse_list`] reads it.
    pub fn list_text(limits: &[Limit]) -> String {
        let texts: Vec<String> = limits.iter().map(Limit::to_string).collect();
        texts.join(parse::SEPARATOR)
    }

    /// The limit as data.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Returns `true` if it counts from the moment its limiter was created.
    pub(crate) fn counts_from_start(&self) -> bool {
        matches!(
            self.spec,
            Spec::TokenBucket { initial: Some(Initial { start: None, .. }), .. }
                | Spec::Smooth { start: None, .. }
        )
    }

    /// The algorithm's name in the grammar.
    pub fn algorithm(&self) -> &'static str {
        match self.spec {
            Spec::TokenBucket { .. } => "token-bucket",
            Spec::LeakyBucket { .. } => "leaky-bucket",
            Spec::MinInterval { .. } => "min-interval",
            Spec::Pacer { .. } => "pacer",
            Spec::FixedWindow { .. } => "fixed-window",
            Spec::SlidingLog { .. } => "sliding-log",
            Spec::SlidingWindow { .. } => "sliding-window",
            Spec::Smooth { .. } => "smooth",
            Spec::Concurrency { .. } => "concurrency",
        }
    }

    /// `COUNT` of `COUNT/PERIOD`: the cost that it admits per [period](Limit::period) of even
    /// traffic. For `concurrency`, the most that is held at once.
    pub fn count(&self) -> u64 {
        self.measure().0
    }

    /// `PERIOD` of `COUNT/PERIOD`. A calendar unit counts with its usual length: a day has 24
    /// hours, a month 30 days, a year 365. For `concurrency`, which has no period, it is zero.
    pub fn period(&self) -> Span {
        self.measure().1
    }

    fn measure(&self) -> (u64, Span) {
        match &self.spec {
            Spec::TokenBucket { rate, .. }
            | Spec::LeakyBucket { rate, .. }
            | Spec::Pacer { rate, .. }
            | Spec::SlidingLog { rate, .. }
            | Spec::SlidingWindow { rate }
            | Spec::Smooth { rate, .. } => (rate.count(), rate.period()),
            Spec::MinInterval { interval } => (1, *interval),
            Spec::Concurrency { count, .. } => (*count, Span::ZERO),
            Spec::FixedWindow { count, windows } => {
                let period = match windows {
                    WindowSpec::Aligned { period, .. } | WindowSpec::First { period } => *period,
                    WindowSpec::Calendar { unit, .. } => Span::from_micros(match unit {
                        CalendarUnit::Day => DAY,
                        CalendarUnit::Week => 7 * DAY,
                        CalendarUnit::Month => 30 * DAY,
                        CalendarUnit::Year => YEAR,
                    }),
                };
                (*count, period)
            }
        }
    }

    /// The names of all algorithms in the grammar.
    pub const ALGORITHMS: [&'static str; 9] = [
        "token-bucket",
        "leaky-bucket",
        "fixed-window",
        "sliding-log",
        "sliding-window",
        "min-interval",
        "pacer",
        "smooth",
        "concurrency",
    ];

    /// The names of the algorithms that decide checks: all but `concurrency`, which grants leases.
    pub const CHECKS: [&'static str; 8] = {
        let [checks @ .., _concurrency] = Limit::ALGORITHMS;
        checks
    };

    /// Returns what the core decides checks with, for a limiter that is created at `now`. The
    /// moment matters only to `smooth` and to a bucket with `initial`, and only without their own
    /// `start`.
    ///
    /// Returns `None` for `concurrency`, which grants leases: see `Limit::as_concurrency`.
    #[doc(hidden)]
    pub fn made_at(&self, now: Time) -> Option<AnyLimit> {
        let Made::Check(made) = &self.made else { return None };
        Some(match (made, &self.spec) {
            (
                AnyLimit::Cell(CellLimit::TokenBucket(bucket)),
                Spec::TokenBucket { initial: Some(Initial { tokens, start: None }), .. },
            ) => {
                // Cannot fail: the same number was accepted when the limit was created.
                let bucket = bucket.starting_with(*tokens, now).unwrap_or(*bucket);
                AnyLimit::Cell(CellLimit::TokenBucket(bucket))
            }
            (AnyLimit::Cell(CellLimit::Smooth(smooth)), Spec::Smooth { start: None, .. }) => {
                AnyLimit::Cell(CellLimit::Smooth(smooth.starting_at(now)))
            }
            (made, _) => made.clone(),
        })
    }

    /// Returns what [`Limit::made_at`] does, for a clock that UTC is ahead of: windows that are
    /// aligned to UTC follow it.
    fn made_on_clock(&self, now: Time, utc_ahead: &UtcAhead) -> Option<AnyLimit> {
        Some(match self.made_at(now)? {
            AnyLimit::Cell(CellLimit::FixedWindow(limit)) => {
                AnyLimit::Cell(CellLimit::FixedWindow(limit.on_clock(utc_ahead.clone())))
            }
            AnyLimit::Cell(CellLimit::SlidingWindow(limit)) => {
                AnyLimit::Cell(CellLimit::SlidingWindow(limit.on_clock(utc_ahead.clone())))
            }
            AnyLimit::Wide(limit) => AnyLimit::Wide(limit.on_clock(utc_ahead.clone())),
            made => made,
        })
    }

    /// Returns what the core decides checks with under all of these limits, or an error, so that
    /// none is left out.
    ///
    /// # Errors
    /// If the limits do not go together, or one grants leases.
    #[doc(hidden)]
    pub fn all_made_at(limits: &[Limit], now: Time) -> Result<Vec<AnyLimit>, LimitError> {
        Limit::all_made_on_clock(limits, now, &UtcAhead::default())
    }

    /// Returns what [`Limit::all_made_at`] does, for a clock that UTC is ahead of.
    pub(crate) fn all_made_on_clock(
        limits: &[Limit],
        now: Time,
        utc_ahead: &UtcAhead,
    ) -> Result<Vec<AnyLimit>, LimitError> {
        Limit::check_list(limits)?;
        let made = |limit: &Limit| limit.made_on_clock(now, utc_ahead).ok_or_else(|| limit.grants_leases());
        limits.iter().map(made).collect()
    }

    /// The highest cost admitted at once for an idle key.
    pub fn at_once(&self) -> u64 {
        match &self.made {
            Made::Check(made) => made.limit(),
            Made::Lease(concurrency) => concurrency.count(),
        }
    }

    /// Returns what the core grants leases with, if this is `concurrency`.
    #[doc(hidden)]
    pub fn as_concurrency(&self) -> Option<Concurrency> {
        match self.made {
            Made::Lease(concurrency) => Some(concurrency),
            Made::Check(_) => None,
        }
    }

    /// Returns `true` if the limit may be in a list of several, which is all or nothing.
    pub fn fits_in_a_list(&self) -> bool {
        !matches!(
            self.spec,
            Spec::SlidingLog { count_all: true, .. } | Spec::Smooth { .. } | Spec::Concurrency { .. }
        )
    }

    fn new(mut spec: Spec, bounds: Bounds) -> Result<Limit, OutOfBounds> {
        let made = match &mut spec {
            Spec::Concurrency { count, ttl } => {
                let made = Made::Lease(Concurrency::new(*count, *ttl)?);
                return Ok(Limit { spec, made });
            }
            Spec::TokenBucket { rate, burst, initial } => {
                let bucket = TokenBucket::new(*rate, *burst)?;
                AnyLimit::Cell(CellLimit::TokenBucket(match initial {
                    None => bucket,
                    Some(Initial { tokens, start }) => {
                        bucket.starting_with(*tokens, start.unwrap_or(Time::EPOCH))?
                    }
                }))
            }
            Spec::LeakyBucket { rate, capacity } => {
                AnyLimit::Cell(CellLimit::LeakyBucket(LeakyBucket::new(*rate, *capacity)?))
            }
            Spec::MinInterval { interval } => {
                AnyLimit::Cell(CellLimit::MinInterval(MinInterval::new(*interval)?))
            }
            Spec::Pacer { rate, queue } => AnyLimit::Cell(CellLimit::Pacer(Pacer::new(*rate, *queue)?)),
            Spec::FixedWindow { count, windows } => AnyLimit::Cell(CellLimit::FixedWindow(match windows {
                WindowSpec::Aligned { start, period } => {
                    FixedWindow::aligned(Rate::new(*count, *period)?, *start)
                }
                WindowSpec::First { period } => FixedWindow::from_first_call(Rate::new(*count, *period)?),
                WindowSpec::Calendar { unit, zone } => {
                    let calendar = ZoneCalendar::new(*unit, zone.clone());
                    FixedWindow::calendar(*count, Arc::new(calendar))?
                }
            })),
            Spec::SlidingLog { rate, count_all } => {
                let log = SlidingLog::with_count_max(*rate, bounds.log_count_max)?;
                AnyLimit::Log(if *count_all { log.counting_denied() } else { log })
            }
            Spec::SlidingWindow { rate } => match SlidingWindow::new(*rate) {
                Ok(limit) => AnyLimit::Cell(CellLimit::SlidingWindow(limit)),
                Err(_) => AnyLimit::Wide(SlidingWindow::wide(*rate)),
            },
            Spec::Smooth { rate, warm_up, burst, initial, start } => {
                let smooth = smooth(*rate, *warm_up, burst, initial)?;
                AnyLimit::Cell(CellLimit::Smooth(smooth.starting_at(start.unwrap_or(Time::EPOCH))))
            }
        };
        Ok(Limit { spec, made: Made::Check(made) })
    }
}

/// Builds Guava's limiter. Options that equal the default are removed.
fn smooth(
    rate: Rate,
    warm_up: Option<WarmUp>,
    burst: &mut Option<u64>,
    initial: &mut Option<u64>,
) -> Result<Smooth, OutOfBounds> {
    let smooth = match warm_up {
        Some(warm_up) => Smooth::warming_up(rate, warm_up)?,
        None => Smooth::bursty(rate, *burst)?,
    };
    if burst.is_some() && Smooth::bursty(rate, None).is_ok_and(|default| default == smooth) {
        *burst = None;
    }
    let Some(permits) = *initial else { return Ok(smooth) };
    let starting = smooth.starting_with(permits)?;
    if starting == smooth {
        *initial = None;
    }
    Ok(starting)
}
