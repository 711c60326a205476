//! Why a shared store gave no answer.

use std::fmt;
use std::time::Duration;

/// The store gave no answer. A denial is an answer, never this.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreFailure {
    /// The call was not sent: the store has failed repeatedly, or there is no connection. Nothing
    /// was charged.
    Unavailable(String),
    /// No reply arrived in time. The call may have been charged, and is not retried.
    TimedOut {
        /// How long the call waited.
        deadline: Duration,
    },
    /// The connection broke before the reply arrived. The call may have been charged, and is not
    /// retried.
    Disconnected(String),
    /// The reply cannot be used. The call may have been charged, and is not retried.
    BadReply(String),
    /// The store rejected the call, for the given reason: out of memory, no permission, a replica.
    /// Nothing was charged.
    Rejected(String),
}

impl StoreFailure {
    /// Returns `true` if the call may have been charged nonetheless.
    pub fn may_have_charged(&self) -> bool {
        matches!(
            self,
            StoreFailure::TimedOut { .. } | StoreFailure::Disconnected(_) | StoreFailure::BadReply(_)
        )
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreFailure::Unavailable(why) => write!(f, "the store is unavailable: {why}"),
            StoreFailure::TimedOut { deadline } => {
                write!(f, "no reply from the store within {deadline:?}; the call may have been charged")
            }
            StoreFailure::Disconnected(why) => {
                write!(f, "the connection to the store broke: {why}; the call may have been charged")
            }
            StoreFailure::BadReply(why) => {
                write!(f, "the store's reply is invalid, and the call may have been charged: {why}")
            }
            StoreFailure::Rejected(why) => write!(f, "the store rejected the call: {why}"),
        }
    }
}

impl std::error::Error for StoreFailure {}
