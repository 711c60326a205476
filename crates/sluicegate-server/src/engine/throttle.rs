//! `CL.THROTTLE`, redis-cell's command: a token bucket whose parameters come with each call.

use super::RequestError;
use super::decided::Decided;
use sluicegate::{RetryAfter, Span};

/// The arguments of a call, as redis-cell names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttle {
    /// The burst, not counting the first call.
    pub max_burst: i64,
    /// Calls per period.
    pub count: i64,
    /// The period, in seconds.
    pub period_s: i64,
    /// The cost; 0 peeks, a negative number refunds.
    pub quantity: i64,
}

/// The five numbers of redis-cell's reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttled {
    /// `true` if the call is denied.
    pub limited: bool,
    /// `max_burst + 1`.
    pub limit: u64,
    /// The cost that would still be allowed.
    pub remaining: u64,
    /// Seconds until the same call would be allowed, rounded up; -1 if it is allowed or never will
    /// be.
    pub retry_after_s: i64,
    /// Seconds until the key is fully recovered, rounded up.
    pub reset_after_s: i64,
}

impl Throttle {
    /// The parameters of the limit: two calls with equal ones have the same limit.
    pub(super) fn parameters(&self) -> [i64; 3] {
        [self.max_burst, self.count, self.period_s]
    }

    /// The limit in the grammar. `burst` is one more than redis-cell's `max_burst`, which does not
    /// count the first call.
    pub(super) fn limit(&self) -> Result<String, RequestError> {
        let Throttle { max_burst, count, period_s, .. } = *self;
        let wrong = |name, value: i64, least| {
            RequestError::new(format!("{name} is {value}; use a whole number of at least {least}"))
        };
        if max_burst < 0 {
            return Err(wrong("max_burst", max_burst, 0));
        }
        if count < 1 {
            return Err(wrong("count per period", count, 1));
        }
        if period_s < 1 {
            return Err(wrong("period", period_s, 1));
        }
        Ok(format!("token-bucket {count}/{period_s}s burst={}", max_burst.saturating_add(1)))
    }
}

impl From<&Decided<'_>> for Throttled {
    fn from(decided: &Decided<'_>) -> Throttled {
        let seconds = |span: Span| i64::try_from(span.as_micros().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        Throttled {
            limited: !decided.allowed(),
            limit: decided.limit(),
            remaining: decided.remaining(),
            retry_after_s: match decided.retry_after() {
                Some(RetryAfter::After(wait)) => seconds(wait),
                Some(RetryAfter::Never) | None => -1,
            },
            reset_after_s: seconds(decided.reset_after()),
        }
    }
}
