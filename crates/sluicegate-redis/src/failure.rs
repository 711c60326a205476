//! What can go wrong, and what to do about it. A denial is not here: it is an answer.

use crate::names::SCOPE_RULE;
use sluicegate::backend::StoreFailure;
use sluicegate::limit::ListError;
use sluicegate::{CALLS_MAX, LimitError};
use std::error::Error;
use std::fmt;

/// What to answer when the store cannot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// Say that it failed: the caller decides.
    #[default]
    Error,
    /// Yes.
    Allow,
    /// No.
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

/// Why there is no store.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not one.
    BadUrl(String),
    /// The beginning of keys' names has a brace, which would put what belongs together into different slots of a cluster.
    BadPrefix(String),
    /// It cannot be used: too old, a replica, or something else than Redis or Valkey.
    Unfit(String),
    /// Nobody answers there.
    Unreachable(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::BadUrl(why) => write!(f, "the store's address is wrong: {why}"),
            ConnectError::BadPrefix(prefix) => {
                write!(f, "the key prefix {prefix:?} has a brace; use one without {{ and }}")
            }
            ConnectError::Unfit(why) => write!(f, "the store cannot be used: {why}"),
            ConnectError::Unreachable(why) => write!(f, "the store cannot be reached: {why}"),
        }
    }
}

impl Error for ConnectError {}

/// Why a limiter cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RedisBuildError {
    /// A text is not a limit.
    Limit(LimitError),
    /// The limits do not go together.
    List(ListError),
    /// No store was named.
    NoStore,
    /// The scope has a sign that it must not have.
    BadScope(String),
    /// A bucket with `initial` does not say since when it fills, and processes would not agree.
    NeedsStart(String),
    /// There is no room in memory for deciding locally.
    Local(sluicegate::BuildError),
    /// The share for deciding locally is not a percentage.
    BadShare(u32),
    /// A semaphore is made of something else than one `concurrency` limit.
    NotOneConcurrency(String),
    /// A `concurrency` limit does not say when a lease lapses.
    NeedsTtl(String),
}

impl fmt::Display for RedisBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedisBuildError::Limit(error) => error.fmt(f),
            RedisBuildError::List(error) => error.fmt(f),
            RedisBuildError::NoStore => f.write_str("there is no store; name one with in_store"),
            RedisBuildError::BadScope(scope) => {
                write!(f, "the scope {scope:?} cannot be part of a key's name; {SCOPE_RULE}")
            }
            RedisBuildError::NeedsStart(limit) => write!(
                f,
                "{limit}: on a shared store all processes must agree when it starts; write start=TIME, such as start=2026-01-01T00:00:00Z"
            ),
            RedisBuildError::Local(error) => write!(f, "deciding in memory while the store is away: {error}"),
            RedisBuildError::BadShare(percent) => {
                write!(f, "a local share of {percent} percent makes no sense; use 1 to 100")
            }
            RedisBuildError::NotOneConcurrency(limits) => write!(
                f,
                "a semaphore is made of one concurrency limit, such as concurrency 10 ttl=30s, and not of {limits:?}; make a RedisLimiter of others"
            ),
            RedisBuildError::NeedsTtl(limit) => write!(
                f,
                "{limit}: on a shared store a lease must lapse, as nobody else could return that of a process that has died; write ttl=DURATION, such as {limit} ttl=30s"
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

/// Why calls cannot be charged together.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RedisCheckAllError {
    /// So many calls are too many.
    TooMany(usize),
    /// One of the limits counts denied calls.
    CountsDenied(String),
    /// One of the limits is `smooth`, which lets the next caller pay.
    Smooth(String),
    /// The keys of two calls are in different slots of a cluster.
    SlotsDiffer(String, String),
    /// Their limiters are in different stores.
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
                "{limit} counts denied calls, so it cannot be charged all or nothing with others; leave out count=all, or check it alone"
            ),
            RedisCheckAllError::Smooth(limit) => {
                write!(f, "{limit}: smooth does not go with other calls; check it alone")
            }
            RedisCheckAllError::SlotsDiffer(one, other) => write!(
                f,
                "the keys {one} and {other} are in different slots of the cluster, so they cannot be charged as one; give both the same hash tag, such as {{acme}}:Harry and {{acme}}:site"
            ),
            RedisCheckAllError::StoresDiffer => f.write_str(
                "the limiters are in different stores, so they cannot be charged as one; use one store",
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
