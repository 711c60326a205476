//! What a store that is away does to a call, and what the call does about it.

pub use sluicegate::StoreFailure;
use std::fmt;

/// What to answer when the store cannot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
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

impl std::error::Error for ConnectError {}
