//! What a reservation accepts and asks for.

use super::error::VerbError;
use sluicegate_core::Span;
use sluicegate_core::algorithm::Verb;
use sluicegate_core::receipts::{ReserveTerms, Ttl};
use sluicegate_core::time::YEAR;
use std::time::Duration;

/// The shortest time to live of a receipt: 1 ms.
pub const TTL_MIN: Span = Span::from_micros(1_000);
/// The longest time to live of a receipt: 10 years.
pub const TTL_MAX: Span = Span::from_micros(10 * YEAR);

/// What a reservation accepts and asks for. By default it never waits, asks for its whole cost,
/// and its receipt is kept until the cost no longer counts, and for at least an hour.
///
/// ```no_run
/// use sluicegate::{Limiter, ReserveOptions, Ttl};
/// use std::time::Duration;
///
/// let tokens = Limiter::new("token-bucket 10000/min")?;
/// tokens.check_cost("team-1", 9_000);
/// // At most 4,000, at least 500. If this process dies, they are returned after a minute.
/// let options = ReserveOptions::default().at_least(500).ttl(Ttl::cancel(Duration::from_secs(60)));
/// let reserved = tokens.reserve("team-1", 4_000, options)?;
/// assert!((500..4_000).contains(&reserved.granted()), "as much as remained");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A [`Duration`] is the options with that maximum wait.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct ReserveOptions {
    /// The longest delay that the caller accepts.
    pub max_wait: Span,
    /// The least that is worth granting; `None` for the whole cost. Not together with a maximum
    /// wait, and not under `pacer`.
    pub at_least: Option<u64>,
    /// The receipt's own time to live, from 1 ms to 10 years.
    pub ttl: Option<Ttl>,
}

impl ReserveOptions {
    /// Sets the longest delay that the caller accepts.
    #[must_use]
    pub fn max_wait(self, max_wait: impl Into<Span>) -> ReserveOptions {
        ReserveOptions { max_wait: max_wait.into(), ..self }
    }

    /// Accepts less than the cost: as much as remains, if that is at least this much. Of several
    /// limits the least that remains counts. The cost may then exceed the limit.
    #[must_use]
    pub fn at_least(self, at_least: u64) -> ReserveOptions {
        ReserveOptions { at_least: Some(at_least), ..self }
    }

    /// Sets how long the receipt is open, and what happens to the charge then.
    #[must_use]
    pub fn ttl(self, ttl: Ttl) -> ReserveOptions {
        ReserveOptions { ttl: Some(ttl), ..self }
    }

    /// The verb, which not every limit supports.
    pub(crate) fn verb(&self) -> Verb {
        if self.at_least.is_some() { Verb::ReserveAtLeast } else { Verb::Reserve }
    }

    #[doc(hidden)] // For backends.
    pub fn terms(&self) -> ReserveTerms {
        let &ReserveOptions { max_wait, at_least, ttl } = self;
        ReserveTerms { max_wait, at_least, ttl }
    }

    /// Checks the options of a reservation of this cost.
    ///
    /// # Errors
    /// If they do not fit together, or the TTL is out of bounds.
    #[doc(hidden)]
    pub fn checked(&self, cost: u64) -> Result<(), VerbError> {
        if let Some(at_least) = self.at_least {
            if self.max_wait > Span::ZERO {
                return Err(VerbError::AtLeastWaits);
            }
            if at_least == 0 || at_least > cost {
                return Err(VerbError::AtLeastOutOfBounds { at_least, cost });
            }
        }
        self.ttl.map_or(Ok(()), |ttl| checked_ttl(ttl.length).map(|_| ()))
    }
}

/// Checks a time to live.
///
/// # Errors
/// If it is out of bounds.
#[doc(hidden)]
pub fn checked_ttl(ttl: impl Into<Span>) -> Result<Span, VerbError> {
    let ttl = ttl.into();
    if (TTL_MIN..=TTL_MAX).contains(&ttl) { Ok(ttl) } else { Err(VerbError::TtlOutOfBounds(ttl)) }
}

impl From<Span> for ReserveOptions {
    fn from(max_wait: Span) -> ReserveOptions {
        ReserveOptions::default().max_wait(max_wait)
    }
}

impl From<Duration> for ReserveOptions {
    fn from(max_wait: Duration) -> ReserveOptions {
        ReserveOptions::default().max_wait(max_wait)
    }
}

impl From<&ReserveOptions> for ReserveOptions {
    fn from(options: &ReserveOptions) -> ReserveOptions {
        *options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_do_not_fit_are_rejected() {
        let options = ReserveOptions::default;
        let second = Duration::from_secs(1);
        for (options, message) in [
            (
                options().at_least(0),
                "at least 0 of a cost of 5 cannot be reserved; use 1 to the cost, or leave it out",
            ),
            (
                options().at_least(6),
                "at least 6 of a cost of 5 cannot be reserved; use 1 to the cost, or leave it out",
            ),
            (
                options().at_least(5).max_wait(second),
                "a reservation of at least some cost never waits; leave out the maximum wait, or at_least",
            ),
            (
                options().ttl(Ttl::keep(Duration::from_micros(999))),
                "a TTL of 999us is out of bounds; use 1 ms to 10 years",
            ),
            (
                options().ttl(Ttl::cancel(TTL_MAX.saturating_add(Span::from_micros(1)))),
                "a TTL of 315360000000001us is out of bounds; use 1 ms to 10 years",
            ),
        ] {
            assert_eq!(options.checked(5).unwrap_err().to_string(), message);
        }
        for options in [
            options(),
            options().at_least(1),
            options().at_least(5),
            options().max_wait(second),
            options().ttl(Ttl::keep(TTL_MIN)),
            options().ttl(Ttl::cancel(TTL_MAX)),
        ] {
            assert_eq!(options.checked(5), Ok(()));
        }
    }
}
