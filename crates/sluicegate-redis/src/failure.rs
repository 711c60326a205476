//! Errors, and what to do about a failing store. A denial is not an error: it is an answer.

use crate::names::SCOPE_RULE;
use sluicegate::backend::StoreFailure;
use sluicegate::limit::ListError;
use sluicegate::{CALLS_MAX, LimitError};
use std::error::Error;
use std::fmt;

/// What a limiter or semaphore answers while the store fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// An error: the caller decides.
    #[default]
    Error,
    /// Allow every call (fail open).
    Allow,
    /// Deny every call (fail closed).
    Deny,
    /// Decide in this process's memory, with a share of the limit.
    Local,
}

impl OnStoreFailure {
    /// Returns the word for it in a configuration file: `error`, `allow`, `deny` or `local`.
    pub fn as_str(self) -> &'static str {
        match self {
            OnStoreFailure::Error => "error",
            OnStoreFailure::Allow => "allow",
            OnStoreFailure::Deny => "deny",
            OnStoreFailure::Local => "local",
        }
    }
}

/// Why a store cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is invalid.
    BadUrl(String),
    /// The key prefix contains a brace, which would spread the state of one key over several hash
    /// slots.
    BadPrefix(String),
    /// The server is unusable: too old, a replica, or not Redis or Valkey.
    Unfit(String),
    /// The server does not answer.
    Unreachable(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::BadUrl(why) => write!(f, "invalid store URL: {why}"),
            ConnectError::BadPrefix(prefix) => {
                write!(f, "the key prefix {prefix:?} contains a brace; use one without {{ and }}")
            }
            ConnectError::Unfit(why) => write!(f, "unusable store: {why}"),
            ConnectError::Unreachable(why) => write!(f, "cannot reach the store: {why}"),
        }
    }
}

impl Error for ConnectError {}

/// Why a limiter or semaphore cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RedisBuildError {
    /// A limit is invalid.
    Limit(LimitError),
    /// The limits cannot be combined.
    List(ListError),
    /// No store was set.
    NoStore,
    /// The scope contains a character that is not allowed.
    BadScope(String),
    /// A bucket with `initial` has no `start`, so the processes would disagree.
    NeedsStart(String),
    /// The memory for local decisions cannot be allocated.
    Local(sluicegate::BuildError),
    /// The local share is not a percentage from 1 to 100.
    BadShare(u32),
    /// The limit of a semaphore is not one `concurrency` limit.
    NotOneConcurrency(String),
    /// A `concurrency` limit has no `ttl`.
    NeedsTtl(String),
}

impl fmt::Display for RedisBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedisBuildError::Limit(error) => error.fmt(f),
            RedisBuildError::List(error) => error.fmt(f),
            RedisBuildError::NoStore => f.write_str("no store was set; call in_store"),
            RedisBuildError::BadScope(scope) => {
                write!(f, "invalid scope {scope:?}: {SCOPE_RULE}")
            }
            RedisBuildError::NeedsStart(limit) => write!(
                f,
                "{limit}: on a shared store all processes must agree on the start; add start=TIME, such as start=2026-01-01T00:00:00Z"
            ),
            RedisBuildError::Local(error) => write!(f, "cannot allocate memory for local decisions: {error}"),
            RedisBuildError::BadShare(percent) => {
                write!(f, "invalid local share of {percent} percent; use 1 to 100")
            }
            RedisBuildError::NotOneConcurrency(limits) => write!(
                f,
                "a semaphore needs one concurrency limit, such as concurrency 10 ttl=30s, not {limits:?}; for other limits build a RedisLimiter"
            ),
            RedisBuildError::NeedsTtl(limit) => write!(
                f,
                "{limit}: on a shared store a lease must expire, or the permits of a dead process would never be freed; add ttl=DURATION, such as {limit} ttl=30s"
            ),
        }
    }
}

impl Error for RedisBuildError {}

impl From<LimitError> for RedisBuildError {
    fn from(error: LimitError) -> RedisBuildError {
        RedisBuildError::Limit(error)
    }
}

impl From<ListError> for RedisBuildError {
    fn from(error: ListError) -> RedisBuildError {
        RedisBuildError::List(error)
    }
}

/// The script decided, but the state in its reply makes no sense.
pub(crate) fn bad_state() -> StoreFailure {
    StoreFailure::BadReply(String::from("a key's state makes no sense; did something else write it?"))
}

/// The script did nothing, because the key's state is not ours.
pub(crate) fn unreadable_state() -> StoreFailure {
    StoreFailure::Rejected(String::from(
        "a key's state cannot be read; did a newer version or something else write it?",
    ))
}

/// Why calls cannot be charged all or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RedisCheckAllError {
    /// There are too many calls.
    TooMany(usize),
    /// One of the limits has `count=all`.
    CountsDenied(String),
    /// One of the limits is `smooth`, where the next caller pays.
    Smooth(String),
    /// Two keys are in different hash slots of a cluster.
    SlotsDiffer(String, String),
    /// The limiters are in different stores.
    StoresDiffer,
    /// The store gave no answer.
    Store(StoreFailure),
}

impl fmt::Display for RedisCheckAllError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedisCheckAllError::TooMany(calls) => {
                write!(f, "{calls} calls are too many; use at most {CALLS_MAX}")
            }
            RedisCheckAllError::CountsDenied(limit) => write!(
                f,
                "{limit} counts denied calls, so it cannot be charged all or nothing with others; remove count=all, or check it alone"
            ),
            RedisCheckAllError::Smooth(limit) => {
                write!(f, "{limit}: smooth cannot be charged all or nothing with others; check it alone")
            }
            RedisCheckAllError::SlotsDiffer(one, other) => write!(
                f,
                "the keys {one} and {other} are in different hash slots, so they cannot be charged together; give both the same hash tag, such as {{acme}}:user:42 and {{acme}}:site"
            ),
            RedisCheckAllError::StoresDiffer => f.write_str(
                "the limiters are in different stores, so they cannot be charged together; use one store",
            ),
            RedisCheckAllError::Store(failure) => failure.fmt(f),
        }
    }
}

impl Error for RedisCheckAllError {}

impl From<StoreFailure> for RedisCheckAllError {
    fn from(failure: StoreFailure) -> RedisCheckAllError {
        RedisCheckAllError::Store(failure)
    }
}
