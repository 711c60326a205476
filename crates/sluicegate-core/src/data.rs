//! Decisions, waits and moments as data, with the feature `serde`.
//!
//! Durations and moments are whole microseconds. A decision is the fields that a caller sees:
//!
//! ```json
//! {"allowed":false,"limit":5,"remaining":0,"retry_after":{"after":12000000},"reset_after":60000000,
//!  "delay":0,"denied_by":0,"denied_call":0}
//! ```
//!
//! If the store had no room, `denied_by` is null and `full_pool` is `"keys"`, `"log_entries"` or
//! `"leases"`. `retry_after` is null if the call is allowed, and `"never"` if no wait helps. Data
//! that no limit could have decided, such as an allowed call that is to retry, is rejected.

use crate::bounds::COUNT_MAX;
use crate::decision::{Decision, FIRST_POOL, FullPool, NO_LIMIT, RetryAfter, Standing};
use crate::time::{Span, Time};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest limit of any algorithm.
const LIMIT_MAX: u64 = COUNT_MAX + 1;

#[derive(Serialize, Deserialize)]
#[serde(rename = "Decision")]
struct DecisionData {
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after: Option<RetryAfter>,
    reset_after: Span,
    delay: Span,
    denied_by: Option<u32>,
    denied_call: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    full_pool: Option<FullPool>,
}

impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        DecisionData {
            allowed: self.allowed(),
            limit: self.limit(),
            remaining: self.remaining(),
            retry_after: self.retry_after(),
            reset_after: self.reset_after(),
            delay: self.delay(),
            denied_by: self.denied_by(),
            denied_call: self.denied_call(),
            full_pool: self.full_pool(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Decision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Decision, D::Error> {
        let data = DecisionData::deserialize(deserializer)?;
        // A pacer admits one call more than its queue holds.
        let count = |name, value: u64| match value {
            0..=LIMIT_MAX => Ok(value),
            _ => Err(D::Error::custom(format_args!("{name} {value} is too large"))),
        };
        let standing = Standing {
            limit: count("limit", data.limit)?,
            remaining: count("remaining", data.remaining)?,
            reset_after: data.reset_after,
        };
        match (data.allowed, data.retry_after) {
            (true, None) if data.denied_by.or(data.denied_call).is_none() && data.full_pool.is_none() => {
                Ok(Decision::allow(standing, data.delay))
            }
            (false, Some(retry_after)) if data.delay == Span::ZERO => {
                let (limit, call) = match (data.denied_by, data.full_pool) {
                    (Some(_), Some(_)) => {
                        return Err(D::Error::custom("a full pool denies a call instead of a limit"));
                    }
                    (Some(limit), None) if limit >= FIRST_POOL => {
                        return Err(D::Error::custom(format_args!("denied_by is below {FIRST_POOL}")));
                    }
                    (limit, pool) => (limit.or(pool.map(FullPool::position)), data.denied_call.unwrap_or(0)),
                };
                if call > NO_LIMIT {
                    return Err(D::Error::custom(format_args!("denied_call is at most {NO_LIMIT}")));
                }
                let limit = limit.unwrap_or(NO_LIMIT);
                Ok(Decision::deny(standing, retry_after).by_limit(limit).by_call(call))
            }
            (true, _) => Err(D::Error::custom("an allowed call has neither retry_after nor denied_by")),
            (false, _) => Err(D::Error::custom("a denied call has a retry_after and no delay")),
        }
    }
}

/// The cases of a [`RetryAfter`], as data.
#[derive(Serialize, Deserialize)]
#[serde(rename = "RetryAfter", rename_all = "lowercase")]
enum RetryAfterData {
    After(Span),
    Never,
}

impl Serialize for RetryAfter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            RetryAfter::After(wait) => RetryAfterData::After(wait),
            RetryAfter::Never => RetryAfterData::Never,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RetryAfter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RetryAfter, D::Error> {
        Ok(match RetryAfterData::deserialize(deserializer)? {
            RetryAfterData::After(wait) => RetryAfter::After(wait),
            RetryAfterData::Never => RetryAfter::Never,
        })
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_micros().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        u64::deserialize(deserializer).map(Span::from_micros)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_micros().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let micros = u64::deserialize(deserializer)?;
        let beyond = || {
            D::Error::custom(format_args!("{micros} is beyond the last moment, {}", Time::MAX.as_micros()))
        };
        Time::from_micros(micros).ok_or_else(beyond)
    }
}
