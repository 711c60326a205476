//! What a guard is made of.

use super::retries::{Retries, RetryRules};
use super::{Guard, Inner};
use crate::breaker::{Breaker, BreakerRules};
use crate::bulkhead::{Bulkhead, BulkheadSpec};
use crate::clock::{AnyClock, Clock, Countdowns};
use crate::limiter::{BuildError, Observer};
use sluicegate_core::Span;
use sluicegate_core::bounds::{COUNT_MAX, PERIOD_MAX};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How many fallbacks of a guard may be under way at once unless told otherwise, as in Hystrix.
pub const MAX_FALLBACKS_DEFAULT: u32 = 10;

/// A part of a guard: a line of text, or one that is there already and that others may use too.
#[derive(Clone, Debug)]
pub enum Part<P> {
    /// To be made with the guard's clock and observer.
    Text(String),
    /// It has its own.
    Made(P),
}

impl<P> From<&str> for Part<P> {
    fn from(text: &str) -> Part<P> {
        Part::Text(text.to_owned())
    }
}

impl<P> From<String> for Part<P> {
    fn from(text: String) -> Part<P> {
        Part::Text(text)
    }
}

macro_rules! ready_made {
    ($($part:ty),*) => {$(
        impl From<$part> for Part<$part> {
            fn from(part: $part) -> Part<$part> {
                Part::Made(part)
            }
        }

        impl From<&$part> for Part<$part> {
            fn from(part: &$part) -> Part<$part> {
                Part::Made(part.clone())
            }
        }
    )*};
}

ready_made!(Breaker, Bulkhead, Retries);

macro_rules! as_printed {
    ($($rules:ty => $part:ty),*) => {$(
        impl From<$rules> for Part<$part> {
            /// What is printed reads the same.
            fn from(rules: $rules) -> Part<$part> {
                Part::Text(rules.to_string())
            }
        }
    )*};
}

as_printed!(BreakerRules => Breaker, BulkheadSpec => Bulkhead, RetryRules => Retries);

/// What a guard is made of. Made by [`Guard::builder`]; every part can be left out.
#[must_use]
pub struct GuardBuilder {
    name: Arc<str>,
    breaker: Option<Part<Breaker>>,
    bulkhead: Option<Part<Bulkhead>>,
    retry: Option<Part<Retries>>,
    timeout: Option<Duration>,
    deadline: Option<Duration>,
    max_fallbacks: u32,
    seed: Option<u64>,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
}

impl GuardBuilder {
    pub(super) fn new(name: Arc<str>) -> GuardBuilder {
        GuardBuilder {
            name,
            breaker: None,
            bulkhead: None,
            retry: None,
            timeout: None,
            deadline: None,
            max_fallbacks: MAX_FALLBACKS_DEFAULT,
            seed: None,
            clock: AnyClock::System,
            observer: None,
        }
    }

    /// A circuit breaker: `breaker 50%/10s`, or one that others use too. Each try asks it.
    pub fn breaker(mut self, breaker: impl Into<Part<Breaker>>) -> GuardBuilder {
        self.breaker = Some(breaker.into());
        self
    }

    /// A bulkhead: `bulkhead 10 queue=5 wait=1s`, one that finds its own limit, `aimd 20` or `gradient 20`, or one that others use too. Each try
    /// takes a place.
    pub fn bulkhead(mut self, bulkhead: impl Into<Part<Bulkhead>>) -> GuardBuilder {
        self.bulkhead = Some(bulkhead.into());
        self
    }

    /// How long one try may take, not counting its wait for a place.
    pub fn timeout(mut self, timeout: Duration) -> GuardBuilder {
        self.timeout = Some(timeout);
        self
    }

    /// Further tries: `retry 2 budget=10%`, or [`Retries`] whose budget others share.
    pub fn retry(mut self, retry: impl Into<Part<Retries>>) -> GuardBuilder {
        self.retry = Some(retry.into());
        self
    }

    /// How long all of a call may take: waits, tries and rests. No try begins after it, and the last one ends with it.
    pub fn deadline(mut self, deadline: Duration) -> GuardBuilder {
        self.deadline = Some(deadline);
        self
    }

    /// How many fallbacks may be under way at once, [`MAX_FALLBACKS_DEFAULT`] unless said.
    pub fn max_fallbacks(mut self, max_fallbacks: u32) -> GuardBuilder {
        self.max_fallbacks = max_fallbacks;
        self
    }

    /// What the rests before retries are drawn from, for tests. They differ in each process unless said.
    pub fn seed(mut self, seed: u64) -> GuardBuilder {
        self.seed = Some(seed);
        self
    }

    /// A clock of your own. For tests: [`crate::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> GuardBuilder {
        self.clock = AnyClock::Other(Arc::new(clock));
        self
    }

    /// Is told what goes wrong with calls and what comes of it, and what happens to the parts that are made from a text.
    pub fn observer(mut self, observer: impl Observer + 'static) -> GuardBuilder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The guard.
    ///
    /// # Errors
    /// When a text is not what it should be, or a number is out of bounds.
    pub fn build(self) -> Result<Guard, BuildError> {
        let GuardBuilder { name, clock, observer, .. } = self;
        let breaker = made(self.breaker, |text| {
            Breaker::builder(text).name(Arc::clone(&name)).watched(&clock, observer.as_ref()).build()
        })?;
        let bulkhead = made(self.bulkhead, |text| {
            Bulkhead::written(text).name(Arc::clone(&name)).watched(&clock, observer.as_ref()).build()
        })?;
        let retry = made(self.retry, |text| match self.seed {
            None => Retries::new(text),
            Some(seed) => Retries::seeded(text, seed),
        })?;
        let inner = Inner {
            breaker,
            bulkhead,
            retry,
            timeout: checked("timeout in microseconds", self.timeout)?,
            deadline: checked("deadline in microseconds", self.deadline)?,
            fallbacks: fallbacks(self.max_fallbacks)?,
            countdowns: Countdowns::new(clock),
            observer,
            counts: super::stats::Counts::default(),
            name,
        };
        Ok(Guard { inner: Arc::new(inner) })
    }
}

/// A part, made now if it is a text.
fn made<P>(
    part: Option<Part<P>>,
    make: impl FnOnce(&str) -> Result<P, BuildError>,
) -> Result<Option<P>, BuildError> {
    match part {
        None => Ok(None),
        Some(Part::Made(part)) => Ok(Some(part)),
        Some(Part::Text(text)) => make(&text).map(Some),
    }
}

/// The places for fallbacks.
fn fallbacks(most: u32) -> Result<Bulkhead, BuildError> {
    if !(1..=COUNT_MAX).contains(&most) {
        let (value, most) = (wide(most), wide(COUNT_MAX));
        return Err(BuildError::OutOfBounds { name: "max_fallbacks", value, least: 1, most });
    }
    Bulkhead::new(&format!("bulkhead {most}"))
}

fn wide(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// From a microsecond to ten years.
fn checked(name: &'static str, duration: Option<Duration>) -> Result<Option<Span>, BuildError> {
    let Some(span) = duration.map(Span::from) else { return Ok(None) };
    if span == Span::ZERO || span > PERIOD_MAX {
        let shown = |span: Span| usize::try_from(span.as_micros()).unwrap_or(usize::MAX);
        return Err(BuildError::OutOfBounds { name, value: shown(span), least: 1, most: shown(PERIOD_MAX) });
    }
    Ok(Some(span))
}

impl fmt::Debug for GuardBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
