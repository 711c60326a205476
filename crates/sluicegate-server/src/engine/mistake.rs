//! What could not be asked or answered. A denial is an answer, not this.

use sluicegate::core::verbs::NotOffered;
use sluicegate::{BackendError, BadLeaseId, BadReceipt, BuildError, LimitError, StoreFailure, TogetherError};
use sluicegate_redis::{RedisBuildError, RedisTogetherError};
use std::fmt;

/// Why a question has no answer: one line for whoever asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
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

impl Mistake {
    /// A question that cannot be answered, and what to write instead.
    pub fn new(message: impl Into<String>) -> Mistake {
        Mistake { kind: Kind::Asked, message: message.into() }
    }

    /// A question that may be answered later.
    pub fn unavailable(message: impl Into<String>) -> Mistake {
        Mistake { kind: Kind::Unavailable, message: message.into() }
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
    pub(super) fn about(self, what: &str) -> Mistake {
        Mistake { kind: self.kind, message: format!("{what}: {}", self.message) }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

macro_rules! wrong_question {
    ($($error:ty),*) => {
        $(impl From<$error> for Mistake {
            fn from(error: $error) -> Mistake {
                Mistake::new(error.to_string())
            }
        })*
    };
}

wrong_question!(LimitError, NotOffered, BadLeaseId, BadReceipt, TogetherError);

impl From<BuildError> for Mistake {
    fn from(error: BuildError) -> Mistake {
        match error {
            BuildError::NoMemory { .. } | BuildError::TooManyLimits { .. } => {
                Mistake::unavailable(error.to_string())
            }
            _ => Mistake::new(error.to_string()),
        }
    }
}

impl From<StoreFailure> for Mistake {
    fn from(failure: StoreFailure) -> Mistake {
        Mistake { kind: Kind::StoreFailed, message: failure.to_string() }
    }
}

impl From<BackendError> for Mistake {
    fn from(error: BackendError) -> Mistake {
        match error {
            BackendError::Store(failure) => failure.into(),
            BackendError::Receipts(_) => Mistake::unavailable(error.to_string()),
            _ => Mistake::new(error.to_string()),
        }
    }
}

impl From<RedisBuildError> for Mistake {
    fn from(error: RedisBuildError) -> Mistake {
        match error {
            RedisBuildError::Local(BuildError::NoMemory { .. } | BuildError::TooManyLimits { .. }) => {
                Mistake::unavailable(error.to_string())
            }
            _ => Mistake::new(error.to_string()),
        }
    }
}

impl From<RedisTogetherError> for Mistake {
    fn from(error: RedisTogetherError) -> Mistake {
        match error {
            RedisTogetherError::Store(failure) => failure.into(),
            other => Mistake::new(other.to_string()),
        }
    }
}
