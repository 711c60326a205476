//! What could not be asked or answered. A denial is an answer, not this.

use sluicegate::core::verbs::NotOffered;
use sluicegate::{BadReceipt, BuildError, LimitError, ReserveError, TogetherError};
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
        self.kind == Kind::Unavailable
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

wrong_question!(LimitError, NotOffered, BadReceipt, TogetherError);

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

impl From<ReserveError> for Mistake {
    fn from(error: ReserveError) -> Mistake {
        match error {
            ReserveError::NotOffered(_) => Mistake::new(error.to_string()),
            _ => Mistake::unavailable(error.to_string()),
        }
    }
}
