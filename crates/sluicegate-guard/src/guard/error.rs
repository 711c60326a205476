//! The errors of a call through a guard.

use crate::breaker::Denied;
use crate::timeout::TimedOut;
use sluicegate::wait::Denial;
use std::error::Error;
use std::fmt;

/// Why a call returned no value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure<E> {
    /// The call was made and failed; this is its last error. (A retry that is denied does not
    /// change it.)
    Failed(E),
    /// The call was made and returned an error that the classifier ignores, since it says nothing
    /// about the dependency. It is neither retried nor replaced by a fallback.
    Ignored(E),
    /// The call exceeded the guard's `timeout` or `deadline`. (A call on a blocked thread ran to
    /// its end nevertheless.)
    TimedOut,
    /// The call was denied: it was not made, not even once.
    Denied(GuardDenial),
    /// The call returned an `Ok` that the classifier counts as a failure. Only a
    /// [`fallback`](super::Call::fallback) receives this; without one the call returns that `Ok`.
    BadResult,
}

/// Why an attempt was denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GuardDenial {
    /// The breaker denied it.
    Breaker(Denied),
    /// The bulkhead denied it.
    Bulkhead(Denial),
    /// No permit of the bulkhead was free before the guard's `deadline`, or it had passed when a
    /// retry was due.
    Deadline,
    /// `call_in_thread` without a bulkhead: its threads would be unbounded.
    NoBulkhead,
    /// The system could not start a thread for `call_in_thread`.
    NoThread,
}

impl<E> Failure<E> {
    /// Returns the call's own error, if there is one.
    pub fn into_error(self) -> Option<E> {
        match self {
            Failure::Failed(error) | Failure::Ignored(error) => Some(error),
            Failure::TimedOut | Failure::Denied(_) | Failure::BadResult => None,
        }
    }

    /// Returns `true` if the call was denied and never made.
    pub fn is_denied(&self) -> bool {
        matches!(self, Failure::Denied(_))
    }
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(error) | Failure::Ignored(error) => error.fmt(f),
            Failure::TimedOut => TimedOut.fmt(f),
            Failure::Denied(denial) => denial.fmt(f),
            Failure::BadResult => f.write_str("the result of the call counts as a failure; retry later"),
        }
    }
}

impl fmt::Display for GuardDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GuardDenial::Breaker(denied) => return denied.fmt(f),
            GuardDenial::Bulkhead(Denial::TooLong) => {
                "the bulkhead is full and no permit was free in time; retry later, or raise wait="
            }
            GuardDenial::Bulkhead(_) => {
                "the bulkhead and its queue are full; retry later, or raise its limit or queue="
            }
            GuardDenial::Deadline => {
                "the deadline passed before a permit was free; retry later, or raise the deadline"
            }
            GuardDenial::NoBulkhead => {
                "call_in_thread needs a bulkhead to bound its threads; add .bulkhead(..)"
            }
            GuardDenial::NoThread => {
                "the system could not start a thread; retry later, or lower the bulkhead's limit"
            }
        })
    }
}

impl<E: Error + 'static> Error for Failure<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // It prints as the inner error, so its source is that error's source.
            Failure::Failed(error) | Failure::Ignored(error) => error.source(),
            Failure::TimedOut | Failure::Denied(_) | Failure::BadResult => None,
        }
    }
}

impl Error for GuardDenial {}
