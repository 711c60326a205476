//! What an unavailable store does to a call.

use std::fmt;
use std::time::Duration;

/// The store gave no answer. A denial is an answer, never this.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreFailure {
    /// It was not asked: it has failed often of late, or there is no connection. Nothing was charged.
    Unavailable(String),
    /// No answer came in time. The call may have been charged, and is not sent again.
    TimedOut {
        /// How long was waited.
        deadline: Duration,
    },
    /// The connection broke before the answer came. The call may have been charged, and is not sent again.
    Disconnected(String),
    /// It answered, and the answer cannot be used. The call may have been charged, and is not sent again.
    BadReply(String),
    /// It refused, in its own words: no memory, no permission, a replica. Nothing was charged.
    Rejected(String),
}

impl StoreFailure {
    /// Whether the call may have been charged all the same.
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
            StoreFailure::Unavailable(why) => write!(f, "the store is away: {why}"),
            StoreFailure::TimedOut { deadline } => {
                write!(f, "the store gave no answer within {deadline:?}; the call may have been charged")
            }
            StoreFailure::Disconnected(why) => {
                write!(f, "the connection to the store broke: {why}; the call may have been charged")
            }
            StoreFailure::BadReply(why) => {
                write!(f, "the store's answer cannot be used: {why} The call may have been charged")
            }
            StoreFailure::Rejected(why) => write!(f, "the store refused: {why}"),
        }
    }
}

impl std::error::Error for StoreFailure {}
