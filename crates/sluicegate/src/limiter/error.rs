//! What can go wrong, and what to do about it. A denial is not here: it is an answer.

use super::check_all::CALLS_MAX;
use crate::limit::{LimitError, ListError};
use crate::store::{NotReserved, RECEIPTS_PER_KEY_MAX};
use sluicegate_core::verbs::Unsupported;
use std::error::Error;
use std::fmt;

/// Why a limiter cannot be made.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A text is not a limit.
    Limit(LimitError),
    /// The limits do not go together.
    List(ListError),
    /// A setting is out of bounds.
    OutOfBounds {
        /// Which setting.
        name: &'static str,
        /// What it was set to.
        value: usize,
        /// The least it can be.
        least: usize,
        /// The most it can be.
        most: usize,
    },
    /// The system refused memory for so many keys. (It may also grant it now and lack it later.)
    NoMemory {
        /// How many.
        max_keys: usize,
    },
    /// This limit decides checks, and a semaphore gives leases.
    GivesNoLeases(String),
    /// A shared store knows as many different limits as it can, and all are in use.
    TooManyLimits {
        /// How many.
        most: usize,
    },
}

/// Why a limiter's limits cannot be changed to others.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChangeError {
    /// A text is not a limit, or the limits do not go together.
    Limits(BuildError),
    /// Another algorithm, or several limits instead of one.
    AnotherKind,
    /// It is a semaphore of a [`LeaseScope`](crate::LeaseScope).
    OfScope,
}

/// Why nothing can be reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReserveError {
    /// The limit does not offer it.
    Unsupported(Unsupported),
    /// So many receipts are open that the limiter remembers no more.
    TooManyReceipts,
    /// This key has so many open receipts.
    TooManyReceiptsOfKey,
}

/// Why calls cannot be made together.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CheckAllError {
    /// There are too many.
    TooMany(usize),
    /// This limit counts denied calls, and together all are charged or none.
    CountsDenied(String),
    /// This limit is `smooth`, which lets the next caller pay: what remains of it says nothing beside the others'.
    Smooth(String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Limit(error) => error.fmt(f),
            BuildError::List(error) => error.fmt(f),
            BuildError::OutOfBounds { name, value, least, most } => {
                write!(f, "{name} is {value}; use {least} to {most}")
            }
            BuildError::NoMemory { max_keys } => {
                write!(f, "the system gives no memory for {max_keys} keys; use a smaller max_keys")
            }
            BuildError::GivesNoLeases(limit) => {
                write!(
                    f,
                    "{limit}: a semaphore takes concurrency; write concurrency 10, or make a Limiter of it"
                )
            }
            BuildError::TooManyLimits { most } => {
                write!(f, "{most} different limits are in use already; give callers fewer to choose from")
            }
        }
    }
}

impl fmt::Debug for BuildError {
    /// As it is displayed: `main` shows its error like this, and the one line says it best.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::Limits(error) => error.fmt(f),
            ChangeError::OfScope => f.write_str(
                "a semaphore of a scope keeps its limit; make another one of the same scope, which goes on with its leases",
            ),
            ChangeError::AnotherKind => f.write_str(
                "a limiter keeps its algorithm, and one limit cannot become several or the reverse; make a new \
                 limiter, as its keys would start afresh in any case",
            ),
        }
    }
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReserveError::Unsupported(error) => error.fmt(f),
            ReserveError::TooManyReceipts => {
                f.write_str("too many receipts are open; cancel, settle or drop some, or raise max_receipts")
            }
            ReserveError::TooManyReceiptsOfKey => {
                write!(f, "the key has {RECEIPTS_PER_KEY_MAX} open receipts; cancel, settle or drop some")
            }
        }
    }
}

impl fmt::Display for CheckAllError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckAllError::TooMany(calls) => {
                write!(f, "{calls} calls are too many to be charged as one; use at most {CALLS_MAX}")
            }
            CheckAllError::CountsDenied(limit) => {
                write!(
                    f,
                    "{limit}: count=all does not go with other calls; leave count=all out, or check it alone"
                )
            }
            CheckAllError::Smooth(limit) => {
                write!(f, "{limit}: smooth does not go with other calls; check it alone")
            }
        }
    }
}

impl Error for BuildError {}
impl Error for ChangeError {}
impl Error for ReserveError {}
impl Error for CheckAllError {}

impl From<LimitError> for BuildError {
    fn from(error: LimitError) -> Self {
        BuildError::Limit(error)
    }
}

impl From<ListError> for BuildError {
    fn from(error: ListError) -> Self {
        BuildError::List(error)
    }
}

impl From<BuildError> for ChangeError {
    fn from(error: BuildError) -> Self {
        ChangeError::Limits(error)
    }
}

impl From<NotReserved> for ReserveError {
    fn from(error: NotReserved) -> Self {
        match error {
            NotReserved::Unsupported(error) => ReserveError::Unsupported(error),
            NotReserved::TooManyReceipts => ReserveError::TooManyReceipts,
            NotReserved::TooManyReceiptsOfKey => ReserveError::TooManyReceiptsOfKey,
        }
    }
}
