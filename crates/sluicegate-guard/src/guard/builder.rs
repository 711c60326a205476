//! What a guard is made of.

use super::{Guard, Inner};
use crate::breaker::{Breaker, BreakerBuilder, BreakerConfig};
use crate::bulkhead::{Bulkhead, BulkheadBuilder, BulkheadConfig};
use crate::event::Observer;
use crate::retry::{Retries, RetryConfig};
use crate::timeout::Timers;
use sluicegate::clock::Clock;
use sluicegate::internal::{AnyClock, within};
use sluicegate::{BuildError, LimitError};
use sluicegate_core::Span;
use sluicegate_core::bounds::{COUNT_MAX, PERIOD_MAX};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How many fallbacks of a guard may be under way at once unless told otherwise, as in Hystrix.
pub const MAX_FALLBACKS_DEFAULT: u32 = 10;

/// A part of a guard: what it is made of, or one that exists already and that others may use too.
#[derive(Debug)]
pub enum Part<P, B> {
    /// To be built with the guard's clock and observer.
    Build(B),
    /// It has its own.
    Existing(P),
}

impl<P, B> Part<P, B> {
    fn make(self, build: impl FnOnce(B) -> Result<P, BuildError>) -> Result<P, BuildError> {
        match self {
            Part::Build(builder) => build(builder),
            Part::Existing(part) => Ok(part),
        }
    }
}

macro_rules! parts {
    ($($part:ty, $builder:ty: $text:expr, $config:ty => $from_config:expr;)*) => {$(
        impl From<$part> for Part<$part, $builder> {
            fn from(part: $part) -> Self {
                Part::Existing(part)
            }
        }

        impl From<&$part> for Part<$part, $builder> {
            fn from(part: &$part) -> Self {
                Part::Existing(part.clone())
            }
        }

        impl From<&str> for Part<$part, $builder> {
            fn from(text: &str) -> Self {
                Part::Build($text(text))
            }
        }

        impl From<String> for Part<$part, $builder> {
            fn from(text: String) -> Self {
                Part::Build($text(&text))
            }
        }

        impl From<$config> for Part<$part, $builder> {
            fn from(config: $config) -> Self {
                Part::Build($from_config(config))
            }
        }
    )*};
}

parts! {
    Breaker, BreakerBuilder: Breaker::builder, BreakerConfig => Breaker::builder;
    Bulkhead, BulkheadBuilder: Bulkhead::from_text, BulkheadConfig => Bulkhead::builder;
    Retries, Result<RetryConfig, LimitError>: str::parse, RetryConfig => Ok;
}

/// What a guard is made of. Made by [`Guard::builder`]; every part can be left out.
#[must_use]
pub struct GuardBuilder {
    name: Arc<str>,
    breaker: Option<Part<Breaker, BreakerBuilder>>,
    bulkhead: Option<Part<Bulkhead, BulkheadBuilder>>,
    retry: Option<Part<Retries, Result<RetryConfig, LimitError>>>,
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
    pub fn breaker(mut self, breaker: impl Into<Part<Breaker, BreakerBuilder>>) -> GuardBuilder {
        self.breaker = Some(breaker.into());
        self
    }

    /// A bulkhead: `bulkhead 10 queue=5 wait=1s`, one that finds its own limit, `aimd 20` or `gradient 20`, or one that others use too. Each try
    /// takes a permit.
    pub fn bulkhead(mut self, bulkhead: impl Into<Part<Bulkhead, BulkheadBuilder>>) -> GuardBuilder {
        self.bulkhead = Some(bulkhead.into());
        self
    }

    /// How long one try may take, not counting its wait for a permit.
    pub fn timeout(mut self, timeout: Duration) -> GuardBuilder {
        self.timeout = Some(timeout);
        self
    }

    /// Further tries: `retry 2 budget=10%`, or [`Retries`] whose budget others share.
    pub fn retry(mut self, retry: impl Into<Part<Retries, Result<RetryConfig, LimitError>>>) -> GuardBuilder {
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
        let breaker = self.breaker.map(|part| {
            part.make(|builder| builder.name(Arc::clone(&name)).inherit(&clock, observer.as_ref()).build())
        });
        let bulkhead = self.bulkhead.map(|part| {
            part.make(|builder| builder.name(Arc::clone(&name)).inherit(&clock, observer.as_ref()).build())
        });
        let retry = self.retry.map(|part| {
            part.make(|config| match self.seed {
                None => Retries::new(config?),
                Some(seed) => Retries::seeded(config?, seed),
            })
        });
        let inner = Inner {
            breaker: breaker.transpose()?,
            bulkhead: bulkhead.transpose()?,
            retry: retry.transpose()?,
            timeout: checked("timeout in microseconds", self.timeout)?,
            deadline: checked("deadline in microseconds", self.deadline)?,
            fallbacks: fallbacks(self.max_fallbacks)?,
            timers: Timers::new(clock),
            observer,
            counts: super::stats::Counts::default(),
            name,
        };
        Ok(Guard { inner: Arc::new(inner) })
    }
}

/// The permits for fallbacks.
fn fallbacks(most: u32) -> Result<Bulkhead, BuildError> {
    within("max_fallbacks", wide(most), 1, wide(COUNT_MAX))?;
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
