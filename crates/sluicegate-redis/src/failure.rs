//! Errors, and what to do about a failing store. A denial is not an error: it is an answer.

use sluicegate::backend::StoreFailure;
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

/// The script decided, but the state in its reply is invalid.
pub(crate) fn bad_state() -> StoreFailure {
    StoreFailure::BadReply(String::from("a key's state is invalid; did another program write it?"))
}

/// The script did nothing, because the key's state is not ours.
pub(crate) fn unreadable_state() -> StoreFailure {
    StoreFailure::Rejected(String::from(
        "a key's state cannot be read; did a newer version or another program write it?",
    ))
}
