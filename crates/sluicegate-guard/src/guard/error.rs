//! Why a call through a guard gave nothing.

use crate::breaker::Denied;
use crate::timeout::TimedOut;
use sluicegate::wait::Denial;
use std::error::Error;
use std::fmt;

/// Why a call gave nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure<E> {
    /// It was made, and failed: this is its last error. (A further try that is refused does not change that.)
    Failed(E),
    /// It was made, and gave an error that says nothing about what was called: the judge does not take it for a failure. Neither
    /// retry nor fallback is for this one.
    Ignored(E),
    /// It took longer than the guard's `timeout` or `deadline`. (A call that blocks its thread was made nevertheless, to its end.)
    TimedOut,
    /// It was not made, not even once: nothing has happened that making it could do.
    Denied(GuardDenial),
    /// It was made, and gave an answer that the judge takes for a failure. Only a [`fallback`](super::Call::fallback) is told so: without one
    /// the answer itself is passed on.
    BadResult,
}

/// Why a call, or a further try of it, was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GuardDenial {
    /// The breaker is open.
    Breaker(Denied),
    /// The bulkhead is full.
    Bulkhead(Denial),
    /// There was no permit of the bulkhead before the guard's `deadline`, or the time for a further try had passed.
    Deadline,
    /// `call_in_thread` without a bulkhead: nothing would bound its threads.
    NoBulkhead,
    /// The system gave no thread for `call_in_thread`.
    NoThread,
}

impl<E> Failure<E> {
    /// The call's own error, if it gave one.
    pub fn into_error(self) -> Option<E> {
        match self {
            Failure::Failed(error) | Failure::Ignored(error) => Some(error),
            Failure::TimedOut | Failure::Denied(_) | Failure::BadResult => None,
        }
    }

    /// Whether it was never made.
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
            Failure::BadResult => {
                f.write_str("the call gave an answer that counts as a failure; try again later")
            }
        }
    }
}

impl fmt::Display for GuardDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GuardDenial::Breaker(denied) => return denied.fmt(f),
            GuardDenial::Bulkhead(Denial::TooLong) => {
                "the bulkhead is full and no permit came in time; try again later, or raise wait="
            }
            GuardDenial::Bulkhead(_) => {
                "the bulkhead is full and nobody else may wait; try again later, or raise its limit or queue="
            }
            GuardDenial::Deadline => {
                "the deadline came before a permit of the bulkhead; try again later, or allow it more time"
            }
            GuardDenial::NoBulkhead => {
                "call_in_thread needs a bulkhead to bound its threads; add .bulkhead(..)"
            }
            GuardDenial::NoThread => {
                "the system gives no further thread; try again later, or lower the bulkhead's limit"
            }
        })
    }
}

impl<E: Error + 'static> Error for Failure<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // It prints as that error, so what is behind it is what was behind that.
            Failure::Failed(error) | Failure::Ignored(error) => error.source(),
            Failure::TimedOut | Failure::Denied(_) | Failure::BadResult => None,
        }
    }
}

impl Error for GuardDenial {}
