//! Why a request has no decision. A denial is a decision, and not an error.

use sluicegate::backend::{BackendError, StoreFailure};
use sluicegate::{BuildError, LimitError, VerbError};
use std::fmt;

/// Why a request has no decision: one line for the client, with the value, the reason and the next
/// step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestError {
    kind: Kind,
    message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The request is invalid.
    BadRequest,
    /// The request names a receipt that is not open.
    NotOpen,
    /// The server cannot decide now.
    Unavailable,
    /// The shared store did not answer, and the rule has no fallback.
    StoreFailed,
}

impl RequestError {
    /// An invalid request. The message says what to write instead.
    pub fn new(message: impl Into<String>) -> RequestError {
        RequestError { kind: Kind::BadRequest, message: message.into() }
    }

    /// A valid request that the server cannot decide now.
    pub fn unavailable(message: impl Into<String>) -> RequestError {
        RequestError { kind: Kind::Unavailable, message: message.into() }
    }

    /// Returns `true` if a retry may succeed.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::StoreFailed)
    }

    /// Returns `true` if the request names a receipt that is not open.
    pub fn is_not_open(&self) -> bool {
        self.kind == Kind::NotOpen
    }

    /// Returns `true` if the shared store did not answer.
    pub fn is_store_failure(&self) -> bool {
        self.kind == Kind::StoreFailed
    }

    /// Prefixes the message with its context.
    pub(super) fn in_context(self, context: &str) -> RequestError {
        RequestError { kind: self.kind, message: format!("{context}: {}", self.message) }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RequestError {}

macro_rules! bad_request {
    ($($error:ty),*) => {
        $(impl From<$error> for RequestError {
            fn from(error: $error) -> RequestError {
                RequestError::new(error.to_string())
            }
        })*
    };
}

bad_request!(LimitError);

impl From<BuildError> for RequestError {
    fn from(error: BuildError) -> RequestError {
        match error {
            BuildError::NoMemory { .. } | BuildError::TooManyLimits { .. } => {
                RequestError::unavailable(error.to_string())
            }
            _ => RequestError::new(error.to_string()),
        }
    }
}

impl From<StoreFailure> for RequestError {
    fn from(failure: StoreFailure) -> RequestError {
        RequestError { kind: Kind::StoreFailed, message: failure.to_string() }
    }
}

impl From<VerbError> for RequestError {
    fn from(error: VerbError) -> RequestError {
        match error {
            VerbError::TooManyReceipts | VerbError::TooManyReceiptsOfKey => {
                RequestError::unavailable(error.to_string())
            }
            VerbError::NotOpen => RequestError { kind: Kind::NotOpen, message: error.to_string() },
            _ => RequestError::new(error.to_string()),
        }
    }
}

impl From<BackendError> for RequestError {
    fn from(error: BackendError) -> RequestError {
        match error {
            BackendError::Store(failure) => failure.into(),
            BackendError::Verb(error) => error.into(),
            _ => RequestError::new(error.to_string()),
        }
    }
}
