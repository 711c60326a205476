//! The result of a call: allowed or denied, and the fields that callers report. A denial is a
//! decision, never an error.

#[doc(hidden)]
pub mod store;

use crate::time::{DAY, SECOND, Span};
use core::fmt;

/// The result of a check and of most other verbs.
///
/// ```
/// use sluicegate_core::{Algorithm, Cell, Rate, Span, Time, token_bucket::TokenBucket};
///
/// let limit = TokenBucket::new(Rate::new(1, Span::from_micros(12_000_000))?, 5)?;
/// let mut state = Cell::UNSEEN;
/// let first = limit.check(&mut state, Time::EPOCH, 1);
/// assert_eq!(first.to_string(), "allowed, 4 of 5 remaining, resets in 12 s");
/// assert!(limit.check(&mut state, Time::EPOCH, 4).allowed());
/// assert_eq!(limit.check(&mut state, Time::EPOCH, 1).to_string(), "denied, retry in 12 s");
/// # Ok::<(), sluicegate_core::bounds::OutOfBounds>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "a denied call must not happen: check `allowed()`"]
pub struct Decision {
    standing: Standing,
    outcome: Outcome,
    /// What denied the call: the position of the limit in its list, and above [`CALL_SHIFT`] bits
    /// the index of the call among several. One field, so that most decisions write a single 0.
    denied_by: u32,
    /// If allowed, the delay; if denied, the wait.
    wait: Span,
}

/// How a key stands under a limit at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The highest cost admitted at once for an idle key.
    pub limit: u64,
    /// The cost that would still be allowed now. Rounded down.
    pub remaining: u64,
    /// The time until the key is fully recovered, assuming no other calls. Rounded up.
    pub reset_after: Span,
}

/// The position that stands for no limit: no list is this long.
pub(crate) const NO_LIMIT: u32 = (1 << CALL_SHIFT) - 1;

/// The positions from here up to [`NO_LIMIT`] stand for full pools.
pub(crate) const FIRST_POOL: u32 = NO_LIMIT - 3;

/// Of what a store had no room for more, so that it denied a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FullPool {
    /// Keys.
    Keys,
    /// Entries of logs.
    LogEntries,
    /// Leases held and waited for.
    Leases,
}

impl FullPool {
    /// Every pool.
    pub const ALL: [FullPool; 3] = [FullPool::Keys, FullPool::LogEntries, FullPool::Leases];

    /// Returns the name that metrics and replies use: `keys`, `log_entries` or `leases`.
    pub const fn as_str(self) -> &'static str {
        match self {
            FullPool::Keys => "keys",
            FullPool::LogEntries => "log_entries",
            FullPool::Leases => "leases",
        }
    }

    /// The position that stands for this pool.
    pub(crate) const fn position(self) -> u32 {
        match self {
            FullPool::Keys => FIRST_POOL,
            FullPool::LogEntries => FIRST_POOL + 1,
            FullPool::Leases => FIRST_POOL + 2,
        }
    }
}

/// Lists and their number are far below 2^16.
const CALL_SHIFT: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Allowed,
    Denied,
    Never,
}

/// The shortest wait after which a denied call would be allowed. `Never` is the longest of all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RetryAfter {
    /// The exact wait: one tick earlier, the call would be denied again.
    After(Span),
    /// The cost exceeds the limit, so no wait helps.
    Never,
}

impl Decision {
    /// Returns `true` if the call may happen.
    pub const fn allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed)
    }

    /// Returns the highest cost admitted at once for an idle key.
    pub const fn limit(&self) -> u64 {
        self.standing.limit
    }

    /// Returns the cost that would still be allowed now, after this call.
    pub const fn remaining(&self) -> u64 {
        self.standing.remaining
    }

    /// Returns the time until the key is fully recovered, assuming no other calls.
    pub const fn reset_after(&self) -> Span {
        self.standing.reset_after
    }

    /// Returns the shortest wait after which the same call would be allowed, or `None` if it is.
    pub const fn retry_after(&self) -> Option<RetryAfter> {
        match self.outcome {
            Outcome::Allowed => None,
            Outcome::Denied => Some(RetryAfter::After(self.wait)),
            Outcome::Never => Some(RetryAfter::Never),
        }
    }

    /// Returns how long the caller must wait before acting on an allowed call. Nonzero only for
    /// pacing, waiting and reserving; zero if denied.
    pub const fn delay(&self) -> Span {
        if self.allowed() { self.wait } else { Span::ZERO }
    }

    /// Returns the position, from 0, of the limit that denied the call, in the list of its limiter.
    /// `None` if the call is allowed, or if the store had no room for it.
    pub const fn denied_by(&self) -> Option<u32> {
        let position = self.denied_by & NO_LIMIT;
        if self.allowed() || position >= FIRST_POOL { None } else { Some(position) }
    }

    /// Returns the pool whose lack of room denied the call, instead of a limit.
    pub fn full_pool(&self) -> Option<FullPool> {
        let position = self.denied_by & NO_LIMIT;
        if self.allowed() {
            return None;
        }
        FullPool::ALL.into_iter().find(|pool| pool.position() == position)
    }

    /// Returns the index, from 0, of the call that was denied, of several that were made all or
    /// nothing. `None` if they are allowed.
    pub const fn denied_call(&self) -> Option<u32> {
        if self.allowed() { None } else { Some(self.denied_by >> CALL_SHIFT) }
    }

    /// Returns the decision if the call is allowed, or else a [`Denied`], for use with `?`.
    ///
    /// ```
    /// # use sluicegate_core::{Algorithm, Cell, Decision, Rate, Span, Time, token_bucket::TokenBucket};
    /// fn remaining(decision: Decision) -> Result<u64, Box<dyn core::error::Error>> {
    ///     Ok(decision.into_result()?.remaining())
    /// }
    /// # let limit = TokenBucket::new(Rate::new(1, Span::from_micros(12_000_000))?, 1)?;
    /// # let mut state = Cell::UNSEEN;
    /// # let (first, second) = (limit.check(&mut state, Time::EPOCH, 1), limit.check(&mut state, Time::EPOCH, 1));
    /// assert_eq!(remaining(first)?, 0);
    /// assert_eq!(remaining(second).unwrap_err().to_string(), "denied, retry in 12 s");
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the call is denied.
    pub const fn into_result(self) -> Result<Decision, Denied> {
        if self.allowed() { Ok(self) } else { Err(Denied(self)) }
    }

    #[inline]
    pub(crate) const fn standing(&self) -> Standing {
        self.standing
    }

    pub(crate) const fn allow(standing: Standing, delay: Span) -> Decision {
        Decision { standing, outcome: Outcome::Allowed, denied_by: 0, wait: delay }
    }

    #[inline]
    pub(crate) const fn deny(standing: Standing, retry_after: RetryAfter) -> Decision {
        let (outcome, wait) = match retry_after {
            RetryAfter::After(wait) => (Outcome::Denied, wait),
            RetryAfter::Never => (Outcome::Never, Span::ZERO),
        };
        Decision { standing, outcome, denied_by: 0, wait }
    }

    /// Attributes a denial to the limit at a position of a list.
    pub(crate) const fn by_limit(self, position: u32) -> Decision {
        Decision { denied_by: (self.denied_by & !NO_LIMIT) | (position & NO_LIMIT), ..self }
    }

    /// Attributes a denial to the call at an index of several.
    pub(crate) const fn by_call(self, index: u32) -> Decision {
        Decision { denied_by: (index << CALL_SHIFT) | (self.denied_by & NO_LIMIT), ..self }
    }
}

/// A denial as an error, for callers that use `?`: made by [`Decision::into_result`].
///
/// A denial is not a failure: no verb returns this by itself, and it has no
/// [`source`](core::error::Error::source).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied(Decision);

impl Denied {
    /// Returns the decision, which is a denial.
    pub const fn decision(&self) -> Decision {
        self.0
    }
}

impl fmt::Display for Denied {
    /// As the decision: `denied, retry in 12 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl core::error::Error for Denied {}

impl fmt::Debug for Decision {
    /// Writes the fields that a caller sees.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("allowed", &self.allowed())
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset_after", &self.reset_after())
            .field("delay", &self.delay())
            .field("denied_by", &self.denied_by())
            .field("denied_call", &self.denied_call())
            .finish()
    }
}

impl fmt::Display for Decision {
    /// Writes one line for a log or a terminal: `allowed, 4 of 5 remaining, resets in 60 s`, or
    /// `denied, retry in 12 s`. The text is for people; programs use the fields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after() {
            Some(RetryAfter::Never) => return f.write_str("denied, retrying will not help"),
            // A lease without a ttl: the time of its release is not known.
            Some(RetryAfter::After(Span::MAX)) => return f.write_str("denied, no retry time known"),
            Some(RetryAfter::After(wait)) => return write!(f, "denied, retry in {}", Readable(wait)),
            None => f.write_str("allowed")?,
        }
        if self.delay() > Span::ZERO {
            write!(f, " after {}", Readable(self.delay()))?;
        }
        write!(f, ", {} of {} remaining", self.remaining(), self.limit())?;
        match self.reset_after() {
            Span::ZERO | Span::MAX => Ok(()),
            reset_after => write!(f, ", resets in {}", Readable(reset_after)),
        }
    }
}

/// A duration with at most three decimals, rounded up, in a unit that keeps the number small.
struct Readable(Span);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MINUTE: u64 = 60 * SECOND;
        const HOUR: u64 = 60 * MINUTE;
        /// From how long on which unit is used.
        const UNITS: [(u64, u64, &str); 4] =
            [(2 * DAY, DAY, "d"), (2 * HOUR, HOUR, "h"), (10 * MINUTE, MINUTE, "min"), (SECOND, SECOND, "s")];
        let micros = self.0.as_micros();
        let fits = |(from, ..): &(u64, u64, &str)| micros >= *from;
        let (_, size, name) = UNITS.into_iter().find(fits).unwrap_or((0, 1_000, "ms"));
        // Every size divides into thousandths, so nothing is lost before the rounding.
        let thousandths = micros.div_ceil(size / 1_000);
        let (whole, mut part, mut places) = (thousandths / 1_000, thousandths % 1_000, 3);
        if part == 0 {
            return write!(f, "{whole} {name}");
        }
        while part.is_multiple_of(10) {
            (part, places) = (part / 10, places - 1);
        }
        write!(f, "{whole}.{part:0places$} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    fn standing(remaining: u64, reset_after: u64) -> Standing {
        Standing { limit: 5, remaining, reset_after: Span::from_micros(reset_after) }
    }

    #[test]
    fn an_allowed_call_prints_what_remains_and_when_it_resets() {
        let allowed = |delay, standing| Decision::allow(standing, Span::from_micros(delay)).to_string();
        assert_eq!(allowed(0, standing(4, 60 * SECOND)), "allowed, 4 of 5 remaining, resets in 60 s");
        assert_eq!(allowed(0, standing(5, 0)), "allowed, 5 of 5 remaining");
        assert_eq!(allowed(0, standing(4, u64::MAX)), "allowed, 4 of 5 remaining");
        assert_eq!(
            allowed(100_000, standing(0, 1_500_000)),
            "allowed after 100 ms, 0 of 5 remaining, resets in 1.5 s"
        );
    }

    #[test]
    fn a_denial_prints_when_to_retry() {
        let denied = |retry_after| Decision::deny(standing(0, SECOND), retry_after).to_string();
        let after = |micros| denied(RetryAfter::After(Span::from_micros(micros)));
        assert_eq!(after(12 * SECOND), "denied, retry in 12 s");
        assert_eq!(after(1), "denied, retry in 0.001 ms");
        assert_eq!(after(SECOND + 1), "denied, retry in 1.001 s");
        assert_eq!(after(90 * 60 * SECOND), "denied, retry in 90 min");
        assert_eq!(after(36 * 3_600 * SECOND), "denied, retry in 36 h");
        assert_eq!(after(10 * DAY + DAY / 2), "denied, retry in 10.5 d");
        assert_eq!(after(u64::MAX), "denied, no retry time known");
        assert_eq!(denied(RetryAfter::Never), "denied, retrying will not help");
    }
}
