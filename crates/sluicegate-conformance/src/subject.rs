//! What is tested, and the fields of its decisions.

use sluicegate_core::{Decision, RetryAfter, Span, Time};
use std::fmt;

/// An implementation that decides one check after another. It keeps the state of every key; each
/// case has a fresh one.
pub trait Subject {
    /// Decides a call at a time.
    fn check(&mut self, at: Time, key: &[u8], cost: u64) -> Fields;

    /// Returns the latest time that it accepts. Cases that go further are skipped.
    fn latest() -> Time {
        Time::MAX
    }

    /// Returns the unit of its durations in microseconds: a protocol may round up to milliseconds.
    fn tick(&self) -> u64 {
        1
    }
}

/// The six fields of a decision, as they are written in the vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    /// Whether the call is allowed.
    pub allowed: bool,
    /// The highest cost admitted at once for an idle key.
    pub limit: u64,
    /// The cost that would still be allowed.
    pub remaining: u64,
    /// `None` when allowed.
    pub retry_after: Option<RetryAfter>,
    /// In microseconds.
    pub reset_after: u64,
    /// In microseconds.
    pub delay: u64,
}

impl Fields {
    /// Rounds the durations up to multiples of a tick, as a subject with that tick reports them.
    #[must_use]
    pub fn rounded_up(self, tick: u64) -> Fields {
        let up = |micros: u64| micros.div_ceil(tick) * tick;
        Fields {
            retry_after: self.retry_after.map(|retry_after| match retry_after {
                RetryAfter::After(wait) => RetryAfter::After(Span::from_micros(up(wait.as_micros()))),
                RetryAfter::Never => RetryAfter::Never,
            }),
            reset_after: up(self.reset_after),
            delay: up(self.delay),
            ..self
        }
    }

    /// Parses the `Display` form.
    pub(crate) fn read(text: &str) -> Option<Fields> {
        let mut fields = text.split(',');
        let mut next = || fields.next();
        let number = |text: &str| text.parse::<u64>().ok();
        Some(Fields {
            allowed: next()? == "1",
            limit: number(next()?)?,
            remaining: number(next()?)?,
            retry_after: match next()? {
                "" => None,
                "never" => Some(RetryAfter::Never),
                wait => Some(RetryAfter::After(Span::from_micros(number(wait)?))),
            },
            reset_after: number(next()?)?,
            delay: number(next()?)?,
        })
    }
}

impl From<Decision> for Fields {
    fn from(decision: Decision) -> Fields {
        Fields {
            allowed: decision.allowed(),
            limit: decision.limit(),
            remaining: decision.remaining(),
            retry_after: decision.retry_after(),
            reset_after: decision.reset_after().as_micros(),
            delay: decision.delay().as_micros(),
        }
    }
}

impl fmt::Display for Fields {
    /// Writes the columns of the vectors: `1,5,4,,60000000,0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fields { limit, remaining, reset_after, delay, .. } = self;
        write!(f, "{},{limit},{remaining},", u8::from(self.allowed))?;
        match self.retry_after {
            None => {}
            Some(RetryAfter::After(wait)) => write!(f, "{}", wait.as_micros())?,
            Some(RetryAfter::Never) => write!(f, "never")?,
        }
        write!(f, ",{reset_after},{delay}")
    }
}
