//! What could not be asked or answered. A denial is an answer, not this.

use sluicegate::backend::{BackendError, StoreFailure};
use sluicegate::{BuildError, LimitError, VerbError};
use std::fmt;

/// Why a question has no answer: one line for whoever asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestError {
    kind: Kind,
    message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The question is wrong.
    Asked,
    /// Nobody can answer just now.
    Unavailable,
    /// Nobody can answer just now: the shared store did not.
    StoreFailed,
}

impl RequestError {
    /// A question that cannot be answered, and what to write instead.
    pub fn new(message: impl Into<String>) -> RequestError {
        RequestError { kind: Kind::Asked, message: message.into() }
    }

    /// A question that may be answered later.
    pub fn unavailable(message: impl Into<String>) -> RequestError {
        RequestError { kind: Kind::Unavailable, message: message.into() }
    }

    /// Whether the same question may be answered later.
    pub fn is_unavailable(&self) -> bool {
        self.kind != Kind::Asked
    }

    /// Whether that is because the shared store gave no answer.
    pub fn is_of_store(&self) -> bool {
        self.kind == Kind::StoreFailed
    }

    /// The same, with what it is about said first.
    pub(super) fn about(self, what: &str) -> RequestError {
        RequestError { kind: self.kind, message: format!("{what}: {}", self.message) }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RequestError {}

macro_rules! wrong_question {
    ($($error:ty),*) => {
        $(impl From<$error> for RequestError {
            fn from(error: $error) -> RequestError {
                RequestError::new(error.to_string())
            }
        })*
    };
}

wrong_question!(LimitError);

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
