//! A limit as text and as data: one line, the same everywhere.
//!
//! ```text
//! token-bucket 30/60s burst=15
//! algorithm    measure options
//! ```
//!
//! `A + B` is a list of limits that must all allow a call.
//!
//! `parse` reads a text, `print` writes the canonical form, and [`Limit::made_at`] turns a limit into
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
use sluicegate_core::smooth::{Smooth, WarmUp};
use sluicegate_core::time::{DAY, YEAR};
use sluicegate_core::token_bucket::TokenBucket;
use sluicegate_core::{Algorithm as _, AnyLimit, CellLimit, Rate, Span, Time};
use std::sync::Arc;

/// An algorithm with its numbers, all of them within bounds.
///
/// Equal limits print the same canonical text, and that text parses to an equal limit.
#[derive(Clone, Debug)]
pub struct Limit {
    spec: Spec,
    /// Made when the limit was, so that handing it out later cannot fail.
    made: Made,
}

/// What the core decides with.
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

/// What a limit says, as data.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Spec {
    /// `token-bucket COUNT/PERIOD [burst=] [initial=] [start=]`
    TokenBucket {
        /// How fast tokens come back.
        rate: Rate,
        /// The most it holds.
        burst: u32,
        /// What a key that has never called holds, unless that is `burst`.
        initial: Option<Initial>,
    },
    /// `leaky-bucket COUNT/PERIOD [capacity=]`
    LeakyBucket {
        /// How fast it leaks.
        rate: Rate,
        /// The most it holds.
        capacity: u32,
    },
    /// `min-interval DURATION`
    MinInterval {
        /// The least time between two allowed calls.
        interval: Span,
    },
    /// `pacer COUNT/PERIOD [queue=]`
    Pacer {
        /// How fast calls leave.
        rate: Rate,
        /// How many may wait.
        queue: u32,
    },
    /// `fixed-window COUNT/PERIOD [start=] [tz=]`
    FixedWindow {
        /// How much each window admits.
        count: u32,
        /// Where windows begin and end.
        windows: WindowSpec,
    },
    /// `sliding-log COUNT/PERIOD [count=all]`
    SlidingLog {
        /// How much any period admits.
        rate: Rate,
        /// Whether denied calls count too.
        count_all: bool,
    },
    /// `sliding-window COUNT/PERIOD`
    SlidingWindow {
        /// About how much any period admits.
        rate: Rate,
    },
    /// `smooth COUNT/PERIOD [warmup=] [cold=] [burst=] [initial=] [start=]`
    Smooth {
        /// How fast permits come in.
        rate: Rate,
        /// How it comes up to its rate, if it has to.
        warm_up: Option<WarmUp>,
        /// The most permits stored, unless that is a second's worth or the warm-up's.
        burst: Option<u32>,
        /// What is stored for a key that has never called, unless that is nothing or, with a warm-up, the most.
        initial: Option<u32>,
        /// When it was made; the moment the limiter was made if not said.
        start: Option<Time>,
    },
    /// `concurrency COUNT [ttl=]`
    Concurrency {
        /// How many at once.
        count: u32,
        /// After how long a lease lapses that is neither returned nor renewed. Without one it is held until it is returned.
        ttl: Option<Span>,
    },
}

/// What a key that has never called holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Initial {
    /// How many tokens.
    pub tokens: u32,
    /// Since when it has been filling; the moment the limiter was made if not said.
    pub start: Option<Time>,
}

/// Where the windows of `fixed-window` begin and end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WindowSpec {
    /// Aligned to a moment, the Unix epoch unless said, and closed before it.
    Aligned {
        /// When the first window begins.
        start: Time,
        /// How long each is.
        period: Span,
    },
    /// Opened by the first allowed call.
    First {
        /// How long each is.
        period: Span,
    },
    /// A unit of the calendar in a zone. (A day in UTC is `Aligned`.)
    Calendar {
        /// Which unit.
        unit: CalendarUnit,
        /// Whose calendar.
        zone: Zone,
    },
}

/// Bounds that whoever runs the limiter may move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// The largest count of a `sliding-log`, which remembers every call: 16 bytes each. A million by default.
    pub log_count_max: u32,
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

    /// Reads a list of limits that must all allow a call, `A + B`, or a single limit. The list has at
    /// most [`LIMITS_MAX`] limits of at most [`LIMIT_LEN_MAX`] bytes each.
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

    /// What the limit says, as data.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Whether it counts from the moment at which its limiter was made.
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

    /// How much it admits in its [period](Limit::period) when calls come evenly: `COUNT` of `COUNT/PERIOD`. Of `concurrency`: how
    /// many at once.
    pub fn count(&self) -> u64 {
        u64::from(self.measure().0)
    }

    /// `PERIOD` of `COUNT/PERIOD`. A unit of the calendar is taken at its usual length: a day 24 hours, a month 30
    /// days, a year 365. Of `concurrency`, which has none, it is zero.
    pub fn period(&self) -> Span {
        self.measure().1
    }

    fn measure(&self) -> (u32, Span) {
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

    /// Every algorithm's name in the grammar.
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

    /// The names of those that decide checks, with a [`crate::Limiter`]: all but `concurrency`, which gives leases.
    pub const CHECKS: [&'static str; 8] = {
        let [checks @ .., _concurrency] = Limit::ALGORITHMS;
        checks
    };

    /// What the core decides checks with, for a limiter that is made at `now`. The moment matters only to `smooth`, and to a bucket
    /// with `initial`, that does not say its own `start`. `None` for `concurrency`, which gives leases and decides no checks:
    /// [`Limit::as_concurrency`]. [`Limit::check_list`] refuses it for whoever makes a list of limits.
    pub fn made_at(&self, now: Time) -> Option<AnyLimit> {
        let Made::Check(made) = &self.made else { return None };
        Some(match (made, &self.spec) {
            (
                AnyLimit::Cell(CellLimit::TokenBucket(bucket)),
                Spec::TokenBucket { initial: Some(Initial { tokens, start: None }), .. },
            ) => {
                // Cannot fail: the same number was accepted when the limit was made.
                let bucket = bucket.starting_with(u64::from(*tokens), now).unwrap_or(*bucket);
                AnyLimit::Cell(CellLimit::TokenBucket(bucket))
            }
            (AnyLimit::Cell(CellLimit::Smooth(smooth)), Spec::Smooth { start: None, .. }) => {
                AnyLimit::Cell(CellLimit::Smooth(smooth.starting_at(now)))
            }
            (made, _) => made.clone(),
        })
    }

    /// What the core decides checks with under all of these limits: each, or an error, so that none is left out.
    ///
    /// # Errors
    /// When they do not go together, or one gives leases.
    pub fn all_made_at(limits: &[Limit], now: Time) -> Result<Vec<AnyLimit>, LimitError> {
        Limit::check_list(limits)?;
        let made = |limit: &Limit| limit.made_at(now).ok_or_else(|| limit.grants_leases());
        limits.iter().map(made).collect()
    }

    /// The most that an idle key could take at once.
    pub fn at_once(&self) -> u64 {
        u64::from(match &self.made {
            Made::Check(made) => made.limit(),
            Made::Lease(concurrency) => concurrency.count(),
        })
    }

    /// What the core gives leases with, if this is `concurrency`.
    #[doc(hidden)]
    pub fn as_concurrency(&self) -> Option<Concurrency> {
        match self.made {
            Made::Lease(concurrency) => Some(concurrency),
            Made::Check(_) => None,
        }
    }

    /// Whether the limit may stand in a list of several, all or nothing.
    pub fn fits_in_a_list(&self) -> bool {
        !matches!(
            self.spec,
            Spec::SlidingLog { count_all: true, .. } | Spec::Smooth { .. } | Spec::Concurrency { .. }
        )
    }

    fn new(mut spec: Spec, bounds: Bounds) -> Result<Limit, OutOfBounds> {
        let made = match &mut spec {
            Spec::Concurrency { count, ttl } => {
                let made = Made::Lease(Concurrency::new(u64::from(*count), *ttl)?);
                return Ok(Limit { spec, made });
            }
            Spec::TokenBucket { rate, burst, initial } => {
                let bucket = TokenBucket::new(*rate, u64::from(*burst))?;
                AnyLimit::Cell(CellLimit::TokenBucket(match initial {
                    None => bucket,
                    Some(Initial { tokens, start }) => {
                        bucket.starting_with(u64::from(*tokens), start.unwrap_or(Time::EPOCH))?
                    }
                }))
            }
            Spec::LeakyBucket { rate, capacity } => {
                AnyLimit::Cell(CellLimit::LeakyBucket(LeakyBucket::new(*rate, u64::from(*capacity))?))
            }
            Spec::MinInterval { interval } => {
                AnyLimit::Cell(CellLimit::MinInterval(MinInterval::new(*interval)?))
            }
            Spec::Pacer { rate, queue } => {
                AnyLimit::Cell(CellLimit::Pacer(Pacer::new(*rate, u64::from(*queue))?))
            }
            Spec::FixedWindow { count, windows } => AnyLimit::Cell(CellLimit::FixedWindow(match windows {
                WindowSpec::Aligned { start, period } => {
                    FixedWindow::aligned(Rate::new(u64::from(*count), *period)?, *start)
                }
                WindowSpec::First { period } => {
                    FixedWindow::from_first_call(Rate::new(u64::from(*count), *period)?)
                }
                WindowSpec::Calendar { unit, zone } => {
                    let calendar = ZoneCalendar::new(*unit, zone.clone());
                    FixedWindow::calendar(u64::from(*count), Arc::new(calendar))?
                }
            })),
            Spec::SlidingLog { rate, count_all } => {
                let log = SlidingLog::with_count_max(*rate, bounds.log_count_max)?;
                AnyLimit::Log(if *count_all { log.counting_denied() } else { log })
            }
            Spec::SlidingWindow { rate } => {
                AnyLimit::Cell(CellLimit::SlidingWindow(SlidingWindow::new(*rate)))
            }
            Spec::Smooth { rate, warm_up, burst, initial, start } => {
                let smooth = smooth(*rate, *warm_up, burst, initial)?;
                AnyLimit::Cell(CellLimit::Smooth(smooth.starting_at(start.unwrap_or(Time::EPOCH))))
            }
        };
        Ok(Limit { spec, made: Made::Check(made) })
    }
}

/// Guava's limiter. What says no more than the default is dropped from the options.
fn smooth(
    rate: Rate,
    warm_up: Option<WarmUp>,
    burst: &mut Option<u32>,
    initial: &mut Option<u32>,
) -> Result<Smooth, OutOfBounds> {
    let smooth = match warm_up {
        Some(warm_up) => Smooth::warming_up(rate, warm_up)?,
        None => Smooth::bursty(rate, burst.map(u64::from))?,
    };
    if burst.is_some() && Smooth::bursty(rate, None).is_ok_and(|default| default == smooth) {
        *burst = None;
    }
    let Some(permits) = *initial else { return Ok(smooth) };
    let starting = smooth.starting_with(u64::from(permits))?;
    if starting == smooth {
        *initial = None;
    }
    Ok(starting)
}
