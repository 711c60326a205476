//! Limits from numbers instead of text.
//!
//! Each algorithm has a constructor on [`Limit`] with its measure as arguments and its options as
//! methods. What it returns can be used wherever a limit is expected, or turned into a [`Limit`]
//! with `build`:
//!
//! ```
//! use sluicegate::limit::{CalendarUnit, per_second};
//! use sluicegate::{Limit, Limiter};
//!
//! let api = Limiter::new((
//!     Limit::token_bucket(10, per_second()).burst(50),
//!     Limit::fixed_window(100_000, CalendarUnit::Month).tz("Europe/Berlin"),
//! ))?;
//! assert_eq!(api.limits()[0], "token-bucket 10/s burst=50".parse()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The bounds are those of the text, and so are the words of an error:
//!
//! ```
//! use sluicegate::Limit;
//! use std::time::Duration;
//!
//! let error = Limit::sliding_log(0, Duration::from_secs(90)).build().unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "sliding-log 0/90s: count 0 is below the minimum, 1; that would deny every call, use at least 1",
//! );
//! ```
//!
//! A period is a [`Duration`] (or a [`Span`]), rounded up to whole microseconds; [`per_second`] and
//! its like are the usual ones.

use super::print::unit;
use super::{Bounds, CalendarUnit, Initial, Limit, LimitError, Spec, WindowSpec, Zone};
use crate::limiter::IntoLimits;
use sluicegate_core::bounds::checked_count;
use sluicegate_core::smooth::{ColdFactor, WarmUp};
use sluicegate_core::time::DAY;
use sluicegate_core::{Rate, Span, Time};
use std::fmt::{self, Display};
use std::time::Duration;

/// A period of one second: `10/s` is `(10, per_second())`.
pub const fn per_second() -> Duration {
    Duration::from_secs(1)
}

/// A period of one minute.
pub const fn per_minute() -> Duration {
    Duration::from_secs(60)
}

/// A period of one hour.
pub const fn per_hour() -> Duration {
    Duration::from_secs(3_600)
}

/// A period of 24 hours. Windows of a calendar day in a time zone are [`CalendarUnit::Day`].
pub const fn per_day() -> Duration {
    Duration::from_secs(86_400)
}

impl Limit {
    /// `token-bucket COUNT/PERIOD`: refills evenly, and holds at most `burst` (COUNT by default).
    pub fn token_bucket(count: u64, period: impl Into<Span>) -> TokenBucket {
        TokenBucket { count, period: period.into(), burst: None, initial: None, start: None }
    }

    /// `leaky-bucket COUNT/PERIOD`: fills by cost, leaks evenly, and holds at most `capacity`
    /// (COUNT by default).
    pub fn leaky_bucket(count: u64, period: impl Into<Span>) -> LeakyBucket {
        LeakyBucket { count, period: period.into(), capacity: None }
    }

    /// `fixed-window COUNT/PERIOD`: windows aligned to the Unix epoch, or to the calendar if the
    /// period is a [`CalendarUnit`].
    pub fn fixed_window(count: u64, period: impl Into<WindowPeriod>) -> FixedWindow {
        FixedWindow { count, period: period.into(), start: None, tz: None }
    }

    /// `sliding-window COUNT/PERIOD`: two weighted counters, in constant memory.
    pub fn sliding_window(count: u64, period: impl Into<Span>) -> SlidingWindow {
        SlidingWindow { count, period: period.into() }
    }

    /// `sliding-log COUNT/PERIOD`: never more than COUNT in any PERIOD, exactly.
    pub fn sliding_log(count: u64, period: impl Into<Span>) -> SlidingLog {
        SlidingLog { count, period: period.into(), count_denied: false, bounds: Bounds::default() }
    }

    /// `min-interval INTERVAL`: at least this long between two allowed calls.
    pub fn min_interval(interval: impl Into<Span>) -> MinInterval {
        MinInterval { interval: interval.into() }
    }

    /// `pacer COUNT/PERIOD`: allowed calls leave evenly spaced, and up to `queue` are queued (COUNT
    /// by default).
    pub fn pacer(count: u64, period: impl Into<Span>) -> Pacer {
        Pacer { count, period: period.into(), queue: None }
    }

    /// `smooth COUNT/PERIOD`: Guava's `RateLimiter`.
    pub fn smooth(count: u64, period: impl Into<Span>) -> Smooth {
        Smooth {
            count,
            period: period.into(),
            warmup: None,
            cold: None,
            burst: None,
            initial: None,
            start: None,
        }
    }

    /// `concurrency COUNT`: at most COUNT leases at once, for a
    /// [`Semaphore`](crate::semaphore::Semaphore).
    pub fn concurrency(count: u64) -> Concurrency {
        Concurrency { count, ttl: None }
    }
}

/// The period of a fixed window: a length of time, or a unit of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowPeriod(PeriodKind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PeriodKind {
    Fixed(Span),
    Calendar(CalendarUnit),
}

impl From<Duration> for WindowPeriod {
    fn from(period: Duration) -> WindowPeriod {
        WindowPeriod(PeriodKind::Fixed(period.into()))
    }
}

impl From<Span> for WindowPeriod {
    fn from(period: Span) -> WindowPeriod {
        WindowPeriod(PeriodKind::Fixed(period))
    }
}

impl From<CalendarUnit> for WindowPeriod {
    fn from(unit: CalendarUnit) -> WindowPeriod {
        WindowPeriod(PeriodKind::Calendar(unit))
    }
}

/// Made by [`Limit::token_bucket`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct TokenBucket {
    count: u64,
    period: Span,
    burst: Option<u64>,
    initial: Option<u64>,
    start: Option<Time>,
}

/// Made by [`Limit::leaky_bucket`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct LeakyBucket {
    count: u64,
    period: Span,
    capacity: Option<u64>,
}

/// Made by [`Limit::fixed_window`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct FixedWindow {
    count: u64,
    period: WindowPeriod,
    start: Option<Start>,
    tz: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    First,
    At(Time),
}

/// Made by [`Limit::sliding_window`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct SlidingWindow {
    count: u64,
    period: Span,
}

/// Made by [`Limit::sliding_log`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct SlidingLog {
    count: u64,
    period: Span,
    count_denied: bool,
    bounds: Bounds,
}

/// Made by [`Limit::min_interval`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct MinInterval {
    interval: Span,
}

/// Made by [`Limit::pacer`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Pacer {
    count: u64,
    period: Span,
    queue: Option<u64>,
}

/// Made by [`Limit::smooth`].
#[derive(Clone, PartialEq, Debug)]
#[must_use]
pub struct Smooth {
    count: u64,
    period: Span,
    warmup: Option<Span>,
    cold: Option<f64>,
    burst: Option<u64>,
    initial: Option<u64>,
    start: Option<Time>,
}

/// Made by [`Limit::concurrency`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Concurrency {
    count: u64,
    ttl: Option<Span>,
}

impl TokenBucket {
    /// Sets the most that the bucket holds.
    pub fn burst(mut self, burst: u64) -> TokenBucket {
        self.burst = Some(burst);
        self
    }

    /// Sets what an unseen key holds when the limiter is created, or at [`TokenBucket::start_at`].
    pub fn initial(mut self, tokens: u64) -> TokenBucket {
        self.initial = Some(tokens);
        self
    }

    /// Sets the moment from which a bucket with [`TokenBucket::initial`] fills: on a shared store
    /// all processes must name the same.
    pub fn start_at(mut self, start: Time) -> TokenBucket {
        self.start = Some(start);
        self
    }
}

impl LeakyBucket {
    /// Sets the most that the bucket holds.
    pub fn capacity(mut self, capacity: u64) -> LeakyBucket {
        self.capacity = Some(capacity);
        self
    }
}

impl FixedWindow {
    /// Opens a key's window with its first allowed call.
    pub fn start_at_first_call(mut self) -> FixedWindow {
        self.start = Some(Start::First);
        self
    }

    /// Aligns the windows to this moment; all calls before it are denied.
    pub fn start_at(mut self, start: Time) -> FixedWindow {
        self.start = Some(Start::At(start));
        self
    }

    /// Sets the time zone of a calendar unit: a name such as `Asia/Shanghai`, or an offset such as
    /// `+08:00`. UTC by default.
    pub fn tz(mut self, zone: &str) -> FixedWindow {
        self.tz = Some(zone.to_owned());
        self
    }
}

impl SlidingLog {
    /// Sets whether denied calls count as well, as in the classic sorted-set recipe.
    pub fn count_denied(mut self, count_denied: bool) -> SlidingLog {
        self.count_denied = count_denied;
        self
    }

    /// Sets bounds other than the default ones.
    pub fn bounds(mut self, bounds: Bounds) -> SlidingLog {
        self.bounds = bounds;
        self
    }
}

impl Pacer {
    /// Sets how many calls may be queued.
    pub fn queue(mut self, queue: u64) -> Pacer {
        self.queue = Some(queue);
        self
    }
}

impl Smooth {
    /// Sets how long the limiter takes to come up to its rate (Guava's `SmoothWarmingUp`).
    pub fn warmup(mut self, warmup: impl Into<Span>) -> Smooth {
        self.warmup = Some(warmup.into());
        self
    }

    /// Sets how much slower a cold limiter is, from 1 to 1000 with up to three decimals. 3 by
    /// default.
    pub fn cold(mut self, factor: f64) -> Smooth {
        self.cold = Some(factor);
        self
    }

    /// Sets the most permits stored: one second's worth by default. Not with [`Smooth::warmup`].
    pub fn burst(mut self, permits: u64) -> Smooth {
        self.burst = Some(permits);
        self
    }

    /// Sets the permits stored at the start.
    pub fn initial(mut self, permits: u64) -> Smooth {
        self.initial = Some(permits);
        self
    }

    /// Sets the start: by default, the moment the limiter is created.
    pub fn start_at(mut self, start: Time) -> Smooth {
        self.start = Some(start);
        self
    }
}

impl Concurrency {
    /// Sets after how long an unreleased lease expires. Without this it never does.
    pub fn ttl(mut self, ttl: impl Into<Span>) -> Concurrency {
        self.ttl = Some(ttl.into());
        self
    }
}

/// What every builder can do. `spec` is `None` if a value is out of bounds or two options
/// contradict each other; which, and what to write instead, is left to the parser, so the words are
/// the same.
trait Build: Display {
    fn spec(&self) -> Option<Spec>;

    fn bounds(&self) -> Bounds {
        Bounds::default()
    }

    fn build_limit(&self) -> Result<Limit, LimitError> {
        match self.spec().and_then(|spec| Limit::new(spec, self.bounds()).ok()) {
            Some(limit) => Ok(limit),
            None => Limit::parse(&self.to_string(), self.bounds()),
        }
    }
}

/// A count, burst, capacity or queue within bounds.
fn units(value: u64, least: u64) -> Option<u64> {
    checked_count("count", value, least).ok()
}

/// An option that is within bounds or not given.
#[expect(clippy::option_option, reason = "out of bounds, not given, or given")]
fn optional(value: Option<u64>, least: u64) -> Option<Option<u64>> {
    value.map_or(Some(None), |value| units(value, least).map(Some))
}

impl Build for TokenBucket {
    fn spec(&self) -> Option<Spec> {
        let rate = Rate::new(self.count, self.period).ok()?;
        let burst = units(self.burst.unwrap_or(self.count), 1)?;
        let tokens = optional(self.initial, 0)?;
        if tokens.is_none() && self.start.is_some() {
            return None;
        }
        // Full is the default, and then the start does not matter.
        let initial = tokens.filter(|tokens| *tokens != burst);
        let initial = initial.map(|tokens| Initial { tokens, start: self.start });
        Some(Spec::TokenBucket { rate, burst, initial })
    }
}

impl Build for LeakyBucket {
    fn spec(&self) -> Option<Spec> {
        let rate = Rate::new(self.count, self.period).ok()?;
        Some(Spec::LeakyBucket { rate, capacity: units(self.capacity.unwrap_or(self.count), 1)? })
    }
}

impl Build for FixedWindow {
    fn spec(&self) -> Option<Spec> {
        let count = units(self.count, 1)?;
        let period = match (self.period.0, &self.tz) {
            // As in the text: a day in a time zone is a day of its calendar.
            (PeriodKind::Fixed(period), Some(_)) if period.as_micros() == DAY => {
                PeriodKind::Calendar(CalendarUnit::Day)
            }
            (period, _) => period,
        };
        let windows = match (period, self.start, &self.tz) {
            (PeriodKind::Fixed(period), None, None) => WindowSpec::Aligned { start: Time::EPOCH, period },
            (PeriodKind::Fixed(period), Some(Start::At(start)), None) => {
                WindowSpec::Aligned { start, period }
            }
            (PeriodKind::Fixed(period), Some(Start::First), None) => WindowSpec::First { period },
            (PeriodKind::Calendar(unit), None, tz) => {
                let zone = tz.as_ref().map_or_else(|| Some(Zone::utc()), |name| Zone::named(name))?;
                if unit == CalendarUnit::Day && zone.is_utc() {
                    // The UTC day is 24 hours from the epoch: one limit, one text.
                    WindowSpec::Aligned { start: Time::EPOCH, period: Span::from_micros(DAY) }
                } else {
                    WindowSpec::Calendar { unit, zone }
                }
            }
            _ => return None,
        };
        Some(Spec::FixedWindow { count, windows })
    }
}

impl Build for SlidingWindow {
    fn spec(&self) -> Option<Spec> {
        Some(Spec::SlidingWindow { rate: Rate::new(self.count, self.period).ok()? })
    }
}

impl Build for SlidingLog {
    fn spec(&self) -> Option<Spec> {
        let rate = Rate::new(self.count, self.period).ok()?;
        Some(Spec::SlidingLog { rate, count_all: self.count_denied })
    }

    fn bounds(&self) -> Bounds {
        self.bounds
    }
}

impl Build for MinInterval {
    fn spec(&self) -> Option<Spec> {
        Some(Spec::MinInterval { interval: self.interval })
    }
}

impl Build for Pacer {
    fn spec(&self) -> Option<Spec> {
        let rate = Rate::new(self.count, self.period).ok()?;
        Some(Spec::Pacer { rate, queue: units(self.queue.unwrap_or(self.count), 0)? })
    }
}

impl Build for Smooth {
    fn spec(&self) -> Option<Spec> {
        let rate = Rate::new(self.count, self.period).ok()?;
        let burst = optional(self.burst, 1)?;
        let initial = optional(self.initial, 0)?;
        let warm_up = match (self.warmup, self.cold) {
            (Some(_), _) if burst.is_some() => return None,
            (Some(period), cold) => {
                let cold = cold.map_or(Some(ColdFactor::DEFAULT), cold_factor)?;
                Some(WarmUp { period, cold })
            }
            (None, Some(_)) => return None,
            (None, None) => None,
        };
        Some(Spec::Smooth { rate, warm_up, burst, initial, start: self.start })
    }
}

/// The factor, if it has at most three decimals and is within bounds.
fn cold_factor(factor: f64) -> Option<ColdFactor> {
    let thousandths: u32 = format!("{:.0}", factor * 1_000.0).parse().ok()?;
    // Exact: a quotient is rounded as the literal is, so they differ only if there are more
    // decimals.
    let is_whole = (f64::from(thousandths) / 1_000.0).to_bits() == factor.to_bits();
    ColdFactor::from_thousandths(thousandths).filter(|_| is_whole)
}

impl Build for Concurrency {
    fn spec(&self) -> Option<Spec> {
        Some(Spec::Concurrency { count: units(self.count, 1)?, ttl: self.ttl })
    }
}

/// Writes options as the text has them.
fn option(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
}

impl Display for TokenBucket {
    /// Writes the limit as text, as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token-bucket {}/{}", self.count, unit(self.period))?;
        option(f, "burst", self.burst)?;
        option(f, "initial", self.initial)?;
        option(f, "start", self.start)
    }
}

impl Display for LeakyBucket {
    /// Writes the limit as text, as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leaky-bucket {}/{}", self.count, unit(self.period))?;
        option(f, "capacity", self.capacity)
    }
}

impl Display for FixedWindow {
    /// Writes the limit as text, as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.period.0 {
            PeriodKind::Fixed(period) => write!(f, "fixed-window {}/{}", self.count, unit(period))?,
            PeriodKind::Calendar(period) => write!(f, "fixed-window {}/{period}", self.count)?,
        }
        match self.start {
            None => {}
            Some(Start::First) => f.write_str(" start=first")?,
            Some(Start::At(start)) => write!(f, " start={start}")?,
        }
        option(f, "tz", self.tz.as_ref())
    }
}

impl Display for SlidingWindow {
    /// Writes the limit as text, as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sliding-window {}/{}", self.count, unit(self.period))
    }
}

impl Display for SlidingLog {
    /// Writes the limit as text, as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sliding-log {}/{}", self.count, unit(self.period))?;
        option(f, "count", self.count_denied.then_some("all"))
    }
}

impl Display for MinInterval {
    /// Writes the limit as text, as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "min-interval {}", self.interval)
    }
}

impl Display for Pacer {
    /// Writes the limit as text, as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pacer {}/{}", self.count, unit(self.period))?;
        option(f, "queue", self.queue)
    }
}

impl Display for Smooth {
    /// Writes the limit as text, as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "smooth {}/{}", self.count, unit(self.period))?;
        option(f, "warmup", self.warmup)?;
        option(f, "cold", self.cold)?;
        option(f, "burst", self.burst)?;
        option(f, "initial", self.initial)?;
        option(f, "start", self.start)
    }
}

impl Display for Concurrency {
    /// Writes the limit as text, as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "concurrency {}", self.count)?;
        option(f, "ttl", self.ttl)
    }
}

macro_rules! builders {
    ($($builder:ident)*) => {
        $(
            impl $builder {
                /// Checks the values and builds the limit.
                ///
                /// # Errors
                /// If a value is out of bounds or two options contradict each other: one line, in
                /// the words of the text.
                pub fn build(&self) -> Result<Limit, LimitError> {
                    self.build_limit()
                }
            }

            impl IntoLimits for $builder {
                fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
                    Ok(vec![self.build()?])
                }
            }

            impl TryFrom<$builder> for Limit {
                type Error = LimitError;

                fn try_from(builder: $builder) -> Result<Limit, LimitError> {
                    builder.build()
                }
            }
        )*
    };
}

builders!(TokenBucket LeakyBucket FixedWindow SlidingWindow SlidingLog MinInterval Pacer Smooth Concurrency);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(micros: u64) -> Time {
        Time::from_micros(micros).unwrap()
    }

    /// Built without the parser's help, and equal to what the parser makes of the text.
    fn same(builder: &impl Build, text: &str) {
        let spec = builder.spec().unwrap_or_else(|| panic!("{text} is not built from its parts"));
        let parsed: Limit = text.parse().unwrap();
        assert_eq!(Limit::new(spec, builder.bounds()).unwrap(), parsed, "{text}");
        assert_eq!(builder.to_string().parse::<Limit>().unwrap(), parsed, "{text}");
    }

    #[test]
    fn a_typed_limit_equals_its_text() {
        same(&Limit::token_bucket(10, per_second()).burst(50), "token-bucket 10/s burst=50");
        same(&Limit::token_bucket(50, 10_000 * MS).initial(0), "token-bucket 50/10s initial=0");
        same(&Limit::token_bucket(5, per_day()).initial(5).start_at(at(7)), "token-bucket 5/d");
        let start = at(1_794_326_400_000_001);
        let text = "token-bucket 5/d initial=2 start=2026-11-10T16:00:00.000001Z";
        same(&Limit::token_bucket(5, per_day()).initial(2).start_at(start), text);
        same(&Limit::leaky_bucket(1, 2_000 * MS).capacity(3), "leaky-bucket 1/2s capacity=3");
        same(&Limit::fixed_window(5, per_minute()), "fixed-window 5/60s");
        same(&Limit::fixed_window(5, per_hour()).start_at_first_call(), "fixed-window 5/h start=first");
        let start = at(1_794_326_400_000_000);
        let text = "fixed-window 100/1h start=2026-11-11T00:00:00+08:00";
        same(&Limit::fixed_window(100, per_hour()).start_at(start), text);
        same(&Limit::fixed_window(1, CalendarUnit::Day), "fixed-window 1/day");
        same(&Limit::fixed_window(1, CalendarUnit::Month), "fixed-window 1/month");
        let text = "fixed-window 1/day tz=Asia/Shanghai";
        same(&Limit::fixed_window(1, per_day()).tz("Asia/Shanghai"), text);
        same(&Limit::fixed_window(1, CalendarUnit::Day).tz("asia/shanghai"), text);
        same(&Limit::fixed_window(1, CalendarUnit::Year).tz("+8"), "fixed-window 1/year tz=+08:00");
        same(&Limit::sliding_log(5, per_minute()), "sliding-log 5/60s");
        same(&Limit::sliding_log(5, per_minute()).count_denied(true), "sliding-log 5/60s count=all");
        same(&Limit::sliding_window(1_000, per_minute()), "sliding-window 1000/60s");
        same(&Limit::min_interval(200 * MS), "min-interval 200ms");
        same(&Limit::pacer(10, per_second()).queue(20), "pacer 10/s queue=20");
        same(&Limit::pacer(10, per_second()).queue(0), "pacer 10/s queue=0");
        same(&Limit::smooth(10, per_second()), "smooth 10/s");
        same(&Limit::smooth(10, per_second()).burst(20).initial(5), "smooth 10/s burst=20 initial=5");
        same(&Limit::smooth(10, per_second()).burst(10), "smooth 10/s");
        same(&Limit::smooth(10, per_second()).warmup(4_000 * MS), "smooth 10/s warmup=4s");
        let text = "smooth 10/s warmup=4s cold=2.345";
        same(&Limit::smooth(10, per_second()).warmup(4_000 * MS).cold(2.345), text);
        same(&Limit::concurrency(10).ttl(30_000 * MS), "concurrency 10 ttl=30s");
        same(&Limit::concurrency(10), "concurrency 10");
    }

    fn rejected(builder: &impl Build, text: &str) {
        let error = builder.build_limit().unwrap_err();
        assert_eq!(error.to_string(), text.parse::<Limit>().unwrap_err().to_string());
    }

    #[test]
    fn an_error_has_the_words_of_the_text() {
        rejected(&Limit::token_bucket(0, per_second()), "token-bucket 0/s");
        rejected(&Limit::token_bucket(1, Duration::ZERO), "token-bucket 1/0s");
        rejected(&Limit::token_bucket(u64::MAX, per_second()), "token-bucket 18446744073709551615/s");
        rejected(&Limit::token_bucket(1, 3_651 * per_day()), "token-bucket 1/3651d");
        rejected(&Limit::token_bucket(1, Duration::MAX), "token-bucket 1/18446744073709551615us");
        rejected(&Limit::token_bucket(1, per_second()).burst(0), "token-bucket 1/s burst=0");
        rejected(
            &Limit::token_bucket(1, per_second()).burst(1 << 40),
            "token-bucket 1/s burst=1099511627776",
        );
        rejected(&Limit::token_bucket(1, per_second()).initial(2), "token-bucket 1/s initial=2");
        let text = "token-bucket 1/s start=1970-01-01T00:00:00Z";
        rejected(&Limit::token_bucket(1, per_second()).start_at(Time::EPOCH), text);
        let text = "token-bucket 1/3650d burst=1000000000";
        rejected(&Limit::token_bucket(1, 3_650 * per_day()).burst(1_000_000_000), text);
        rejected(&Limit::leaky_bucket(1, per_second()).capacity(0), "leaky-bucket 1/s capacity=0");
        rejected(&Limit::fixed_window(0, CalendarUnit::Month), "fixed-window 0/month");
        rejected(&Limit::fixed_window(5, 90_000 * MS).tz("UTC"), "fixed-window 5/90s tz=UTC");
        let text = "fixed-window 5/month tz=Nowhere/Land";
        rejected(&Limit::fixed_window(5, CalendarUnit::Month).tz("Nowhere/Land"), text);
        rejected(&Limit::fixed_window(5, CalendarUnit::Month).tz(""), "fixed-window 5/month tz=");
        let text = "fixed-window 5/month start=first";
        rejected(&Limit::fixed_window(5, CalendarUnit::Month).start_at_first_call(), text);
        rejected(&Limit::sliding_log(10_001, per_second()), "sliding-log 10001/s");
        rejected(&Limit::min_interval(Duration::ZERO), "min-interval 0s");
        rejected(&Limit::pacer(1, per_second()).queue(u64::MAX), "pacer 1/s queue=18446744073709551615");
        rejected(&Limit::smooth(1, per_second()).cold(3.0), "smooth 1/s cold=3");
        let warm = || Limit::smooth(1, per_second()).warmup(90_000 * MS);
        rejected(&warm().burst(5), "smooth 1/s warmup=90s burst=5");
        for (factor, word) in [
            (0.5, "0.5"),
            (1000.5, "1000.5"),
            (2.3456, "2.3456"),
            (-3.0, "-3"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ] {
            rejected(&warm().cold(factor), &format!("smooth 1/s warmup=90s cold={word}"));
        }
        rejected(&Limit::concurrency(0), "concurrency 0");
        rejected(&Limit::concurrency(1).ttl(Duration::ZERO), "concurrency 1 ttl=0s");
    }

    #[test]
    fn a_log_may_have_a_lower_bound() {
        let bounds = Bounds { log_count_max: 500 };
        assert_eq!(Limit::sliding_log(500, MS).bounds(bounds).build().unwrap().count(), 500);
        assert!(Limit::sliding_log(501, MS).bounds(bounds).build().is_err());
    }
}
