//! What can go wrong, and what to do about it. A denial is not here: it is an answer.

use super::CALLS_MAX;
use crate::failure::StoreFailure;
use crate::names::SCOPE_RULE;
use sluicegate::core::verbs::NotOffered;
use sluicegate::{LimitError, ListError};
use std::error::Error;
use std::fmt;

/// Why a limiter cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BuildError {
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

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Limit(error) => error.fmt(f),
            BuildError::List(error) => error.fmt(f),
            BuildError::NoStore => f.write_str("there is no store; name one with in_store"),
            BuildError::BadScope(scope) => {
                write!(f, "the scope {scope:?} cannot be part of a key's name; {SCOPE_RULE}")
            }
            BuildError::NeedsStart(limit) => write!(
                f,
                "{limit}: on a shared store all processes must agree when it starts; write start=TIME, such as start=2026-01-01T00:00:00Z"
            ),
            BuildError::Local(error) => write!(f, "deciding in memory while the store is away: {error}"),
            BuildError::BadShare(percent) => {
                write!(f, "a local share of {percent} percent makes no sense; use 1 to 100")
            }
            BuildError::NotOneConcurrency(limits) => write!(
                f,
                "a semaphore is made of one concurrency limit, such as concurrency 10 ttl=30s, and not of {limits:?}; make a RedisLimiter of others"
            ),
            BuildError::NeedsTtl(limit) => write!(
                f,
                "{limit}: on a shared store a lease must lapse, as nobody else could return that of a process that has died; write ttl=DURATION, such as {limit} ttl=30s"
            ),
        }
    }
}

impl Error for BuildError {}

impl From<LimitError> for BuildError {
    fn from(error: LimitError) -> BuildError {
        BuildError::Limit(error)
    }
}

impl From<ListError> for BuildError {
    fn from(error: ListError) -> BuildError {
        BuildError::List(error)
    }
}

/// Why a verb other than a check has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AskError {
    /// The limit does not offer it.
    NotOffered(NotOffered),
    /// The key has as many open receipts as it may.
    TooManyReceipts,
    /// The store gave no answer, and the limiter is not to answer without it.
    Store(StoreFailure),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::NotOffered(refused) => refused.fmt(f),
            AskError::TooManyReceipts => {
                f.write_str("the key has 1024 open receipts; settle or cancel some, or use check instead")
            }
            AskError::Store(failure) => failure.fmt(f),
        }
    }
}

impl Error for AskError {}

impl From<NotOffered> for AskError {
    fn from(refused: NotOffered) -> AskError {
        AskError::NotOffered(refused)
    }
}

impl From<StoreFailure> for AskError {
    fn from(failure: StoreFailure) -> AskError {
        AskError::Store(failure)
    }
}

/// Why calls cannot be charged together.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TogetherError {
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

impl fmt::Display for TogetherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TogetherError::TooMany(calls) => write!(f, "{calls} calls are too many; use at most {CALLS_MAX}"),
            TogetherError::CountsDenied(limit) => write!(
                f,
                "{limit} counts denied calls, so it cannot be charged all or nothing with others; leave out count=all, or check it alone"
            ),
            TogetherError::Smooth(limit) => {
                write!(f, "{limit}: smooth does not go with other calls; check it alone")
            }
            TogetherError::SlotsDiffer(one, other) => write!(
                f,
                "the keys {one} and {other} are in different slots of the cluster, so they cannot be charged as one; give both the same hash tag, such as {{acme}}:Harry and {{acme}}:site"
            ),
            TogetherError::StoresDiffer => f.write_str(
                "the limiters are in different stores, so they cannot be charged as one; use one store",
            ),
            TogetherError::Store(failure) => failure.fmt(f),
        }
    }
}

impl Error for TogetherError {}

impl From<StoreFailure> for TogetherError {
    fn from(failure: StoreFailure) -> TogetherError {
        TogetherError::Store(failure)
    }
}
