//! The errors of building a limiter and of its verbs. Neither is a denial: that is a decision.

use super::check_all::CALLS_MAX;
use crate::limit::LimitError;
use crate::store::NotReserved;
use sluicegate_core::Span;
use sluicegate_core::verbs::Unsupported;
use std::error::Error;
use std::fmt;

/// Why a limiter or a semaphore cannot be built, or its limits cannot be changed.
///
/// Memory and Redis share this type, so that code can move between them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A text is not a limit, or the limits do not go together.
    Limit(LimitError),
    /// A setting is out of bounds.
    OutOfBounds {
        /// The name of the setting.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The least it can be.
        least: usize,
        /// The most it can be.
        most: usize,
    },
    /// The system has no memory for that many keys. (It may also grant it now and lack it later.)
    NoMemory {
        /// The number of keys.
        max_keys: usize,
    },
    /// A semaphore was given this limit, which decides checks and grants no leases.
    GrantsNoLeases(String),
    /// The [`MemoryStore`](crate::MemoryStore) holds as many different limits as it can, and all
    /// are in use.
    TooManyLimits {
        /// How many it holds.
        most: usize,
    },
    /// A change would replace the algorithm, one limit by several or the reverse, or the counters
    /// of a sliding window by larger or smaller ones.
    AlgorithmChanged,
    /// A semaphore of a [`LeaseScope`](crate::semaphore::LeaseScope) cannot change its limit.
    ScopedSemaphore,
    /// No store was set for a limiter or semaphore in a shared store.
    NoStore,
    /// This scope cannot be part of a key's name in a shared store.
    BadScope(String),
    /// This limit counts from the moment its limiter is created, on which the processes that share
    /// a store would not agree.
    NeedsStart(String),
    /// This `concurrency` limit has no `ttl`: in a shared store the lease of a process that crashed
    /// would never expire.
    NeedsTtl(String),
}

/// Why a verb has no decision: the limit does not support it, or its arguments do not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VerbError {
    /// The limit does not support the verb.
    Unsupported(Unsupported),
    /// As many receipts are open as the limiter keeps.
    TooManyReceipts,
    /// As many receipts are open for the key as a limiter keeps for one.
    TooManyReceiptsOfKey,
    /// The text is not a receipt, or the receipt belongs to another kind of backend.
    BadReceipt,
    /// The text is not a lease id, or the lease belongs to another kind of backend.
    BadLeaseId,
    /// This many calls are to be charged all or nothing, more than [`CALLS_MAX`].
    TooManyCalls(usize),
    /// This limit counts denied calls, and several calls are charged all or none.
    CountsDenied(String),
    /// This limit is `smooth`, under which the next caller pays: its `remaining` cannot be compared
    /// with that of the other calls.
    Smooth(String),
    /// Two keys are in different hash slots of a Redis cluster, and either a call is under `pacer`,
    /// or their receipt is extended.
    SlotsDiffer(String, String),
    /// The limiters of two calls of one `check_all` are in different shared stores, or those of one
    /// `reserve_all` in different stores.
    StoresDiffer,
    /// The least that a reservation grants is 0, or more than its cost.
    AtLeastOutOfBounds {
        /// The least.
        at_least: u64,
        /// The cost.
        cost: u64,
    },
    /// A reservation of at least some cost was given a maximum wait.
    AtLeastWaits,
    /// Several calls were reserved with `at_least`, which one call can have.
    AtLeastOfSeveral,
    /// The time to live is shorter than 1 ms or longer than 10 years.
    TtlOutOfBounds(Span),
    /// There must be one number for all calls of a receipt, or one for each.
    WrongCount {
        /// How many numbers there were.
        numbers: usize,
        /// How many calls the receipt has.
        calls: usize,
    },
    /// The receipt was settled or cancelled, has expired or is void, so it cannot be extended.
    NotOpen,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Limit(error) => error.fmt(f),
            BuildError::OutOfBounds { name, value, least, most } => {
                write!(f, "{name} is {value}; use {least} to {most}")
            }
            BuildError::NoMemory { max_keys } => {
                write!(f, "the system has no memory for {max_keys} keys; use a smaller max_keys")
            }
            BuildError::GrantsNoLeases(limit) => write!(
                f,
                "{limit}: a semaphore takes one concurrency limit; write concurrency 10 ttl=30s, or build a limiter \
                 from it"
            ),
            BuildError::TooManyLimits { most } => {
                write!(
                    f,
                    "the pool of limits is full: {most} different ones are in use; give callers fewer to choose from"
                )
            }
            BuildError::AlgorithmChanged => f.write_str(
                "a limiter keeps its algorithm, one limit cannot become several or the reverse, and the count of a \
                 sliding-window stays on its side of 2^32; build a new limiter, since its keys would start with \
                 fresh state in any case",
            ),
            BuildError::ScopedSemaphore => f.write_str(
                "a semaphore of a scope keeps its limit; build another one of the same scope, which takes over its \
                 leases",
            ),
            BuildError::NoStore => f.write_str("no store was set; call in_store"),
            BuildError::BadScope(scope) => {
                write!(f, "invalid scope {scope:?}: use any text without | {{ and }}")
            }
            BuildError::NeedsStart(limit) => write!(
                f,
                "{limit}: on a shared store all processes must agree on the start; add start=TIME, such as \
                 start=2026-01-01T00:00:00Z"
            ),
            BuildError::NeedsTtl(limit) => write!(
                f,
                "{limit}: on a shared store a lease must expire, or the permits of a dead process would never be \
                 freed; add ttl=DURATION, such as {limit} ttl=30s"
            ),
        }
    }
}

impl fmt::Display for VerbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerbError::Unsupported(error) => error.fmt(f),
            VerbError::TooManyReceipts => {
                f.write_str("the pool of receipts is full; cancel, settle or drop some, or raise max_receipts")
            }
            VerbError::TooManyReceiptsOfKey => {
                f.write_str("too many receipts of the key are open; cancel, settle or drop some")
            }
            VerbError::BadReceipt => {
                f.write_str("not a receipt; pass the text from the reservation unchanged")
            }
            VerbError::BadLeaseId => {
                f.write_str("not a lease id; pass the text from the acquire unchanged")
            }
            VerbError::TooManyCalls(calls) => {
                write!(f, "{calls} calls are too many to charge all or nothing; use at most {CALLS_MAX}")
            }
            VerbError::CountsDenied(limit) => write!(
                f,
                "{limit}: count=all does not go with other calls; leave count=all out, or check it alone"
            ),
            VerbError::Smooth(limit) => {
                write!(f, "{limit}: smooth does not go with other calls; check it alone")
            }
            VerbError::SlotsDiffer(one, other) => write!(
                f,
                "the keys {one} and {other} are in different hash slots of the cluster: a receipt over both cannot be \
                 extended, nor a pacer be charged with other limits; give both the same hash tag, such as \
                 {{acme}}:user:42 and {{acme}}:site"
            ),
            VerbError::StoresDiffer => f.write_str(
                "the limiters are in different stores, so they cannot be charged all or nothing; use one store",
            ),
            VerbError::AtLeastOutOfBounds { at_least, cost } => write!(
                f,
                "at least {at_least} of a cost of {cost} cannot be reserved; use 1 to the cost, or leave it out"
            ),
            VerbError::AtLeastWaits => f.write_str(
                "a reservation of at least some cost never waits; leave out the maximum wait, or at_least",
            ),
            VerbError::AtLeastOfSeveral => {
                f.write_str("several calls are reserved with their whole costs; leave out at_least")
            }
            VerbError::TtlOutOfBounds(ttl) => {
                write!(f, "a TTL of {}us is out of bounds; use 1 ms to 10 years", ttl.as_micros())
            }
            VerbError::WrongCount { numbers, calls: 1 } => {
                write!(f, "{numbers} numbers for a receipt of 1 call; pass one")
            }
            VerbError::WrongCount { numbers, calls } => write!(
                f,
                "{numbers} numbers for a receipt of {calls} calls; pass one for all of them, or one for each"
            ),
            VerbError::NotOpen => f.write_str(
                "the receipt is not open: it was settled, cancelled or reset, or has expired; reserve again",
            ),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // It prints as the inner error, so its source is that error's source.
            BuildError::Limit(error) => error.source(),
            _ => None,
        }
    }
}

impl Error for VerbError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            VerbError::Unsupported(error) => error.source(),
            _ => None,
        }
    }
}

impl From<LimitError> for BuildError {
    fn from(error: LimitError) -> Self {
        BuildError::Limit(error)
    }
}

impl From<Unsupported> for VerbError {
    fn from(error: Unsupported) -> Self {
        VerbError::Unsupported(error)
    }
}

impl From<NotReserved> for VerbError {
    fn from(error: NotReserved) -> Self {
        match error {
            NotReserved::Unsupported(error) => VerbError::Unsupported(error),
            NotReserved::TooManyReceipts => VerbError::TooManyReceipts,
            NotReserved::TooManyReceiptsOfKey => VerbError::TooManyReceiptsOfKey,
            NotReserved::NotOpen => VerbError::NotOpen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendError, StoreFailure};
    use sluicegate_core::algorithm::{Verb, Waiting};

    #[test]
    fn an_error_names_its_variant() {
        let error = BuildError::from("sliding-log 5/60x".parse::<crate::Limit>().unwrap_err());
        assert!(format!("{error:?}").starts_with("Limit("), "{error:?}");
        assert_eq!(format!("{:?}", VerbError::TooManyCalls(65)), "TooManyCalls(65)");
    }

    /// A program that prints an error and its sources prints each text once.
    #[test]
    fn a_chain_of_errors_prints_each_text_once() {
        let unsupported = Unsupported { verb: Verb::Take, waiting: Waiting::NextCallerPays };
        let failure = StoreFailure::Unavailable("no connection".to_owned());
        let errors: [Box<dyn Error>; 5] = [
            BuildError::from("sliding-log 5/60x".parse::<crate::Limit>().unwrap_err()).into(),
            VerbError::from(unsupported).into(),
            BackendError::from(unsupported).into(),
            BackendError::from(VerbError::BadReceipt).into(),
            BackendError::from(failure).into(),
        ];
        for error in errors {
            let chain = std::iter::successors(Some(&*error), |&error: &&dyn Error| error.source());
            let mut texts: Vec<String> = chain.map(ToString::to_string).collect();
            let len = texts.len();
            texts.dedup();
            assert_eq!(texts.len(), len, "{texts:?}");
        }
    }
}
