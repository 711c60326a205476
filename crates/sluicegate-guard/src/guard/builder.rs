//! The builder of a guard.

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
use sluicegate_core::bounds::{PERIOD_MAX, PERMITS_MAX};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Default of `max_fallbacks`, as in Hystrix.
pub const MAX_FALLBACKS_DEFAULT: u32 = 10;

/// A part of a guard: the builder of a new one, or an existing one that other guards may share.
#[derive(Debug)]
pub enum Part<P, B> {
    /// Built with the guard's clock and observer.
    Build(B),
    /// Has its own clock and observer.
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

/// Builds a guard. Created by [`Guard::builder`]; every part is optional.
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

    /// Adds a circuit breaker: `breaker 50%/10s`, or a shared one. It admits or denies each
    /// attempt.
    pub fn breaker(mut self, breaker: impl Into<Part<Breaker, BreakerBuilder>>) -> GuardBuilder {
        self.breaker = Some(breaker.into());
        self
    }

    /// Adds a bulkhead: `bulkhead 10 queue=5 wait=1s`, an adaptive one such as `aimd 20` or
    /// `gradient 20`, or a shared one. Each attempt takes a permit.
    pub fn bulkhead(mut self, bulkhead: impl Into<Part<Bulkhead, BulkheadBuilder>>) -> GuardBuilder {
        self.bulkhead = Some(bulkhead.into());
        self
    }

    /// Sets the timeout of one attempt, not counting its wait for a permit.
    pub fn timeout(mut self, timeout: Duration) -> GuardBuilder {
        self.timeout = Some(timeout);
        self
    }

    /// Adds retries: `retry 2 budget=10%`, or [`Retries`] with a shared budget.
    pub fn retry(mut self, retry: impl Into<Part<Retries, Result<RetryConfig, LimitError>>>) -> GuardBuilder {
        self.retry = Some(retry.into());
        self
    }

    /// Sets the deadline of a whole call: waits, attempts and delays. No attempt begins after it,
    /// and it ends the last one.
    pub fn deadline(mut self, deadline: Duration) -> GuardBuilder {
        self.deadline = Some(deadline);
        self
    }

    /// Sets how many fallbacks may run at once; the default is [`MAX_FALLBACKS_DEFAULT`].
    pub fn max_fallbacks(mut self, max_fallbacks: u32) -> GuardBuilder {
        self.max_fallbacks = max_fallbacks;
        self
    }

    /// Sets the seed of the delays before retries, for tests. By default it is random per process.
    pub fn seed(mut self, seed: u64) -> GuardBuilder {
        self.seed = Some(seed);
        self
    }

    /// Uses this clock instead of the system clock. For tests: [`crate::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> GuardBuilder {
        self.clock = AnyClock::Other(Arc::new(clock));
        self
    }

    /// Notifies this observer of failures, denials, retries and fallbacks, and of the events of
    /// parts built from a text.
    pub fn observer(mut self, observer: impl Observer + 'static) -> GuardBuilder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Builds the guard.
    ///
    /// # Errors
    /// If a text is not valid, or a number is out of bounds.
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

/// Returns the permits for fallbacks.
fn fallbacks(max_fallbacks: u32) -> Result<Bulkhead, BuildError> {
    within("max_fallbacks", wide(max_fallbacks), 1, wide(PERMITS_MAX))?;
    Bulkhead::new(BulkheadConfig::without_queue(max_fallbacks))
}

fn wide(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Checks that a duration is from a microsecond to ten years.
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
