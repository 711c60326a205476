//! What came of waiting for a turn.

use crate::answer::{Answer, Source};
use sluicegate::{Decision, Refusal};
use std::time::Duration;

/// The end of a wait: the caller may act now, or is told why not. In the words of [`sluicegate::Turn`], and with who decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a call whose turn did not come must not happen: ask `allowed()`"]
pub struct Turn {
    answer: Answer,
    waited: Duration,
    refusal: Option<Refusal>,
}

impl Turn {
    pub(crate) const fn come(answer: Answer, waited: Duration) -> Turn {
        Turn { answer, waited, refusal: None }
    }

    pub(crate) const fn refused(refusal: Refusal, answer: Answer, waited: Duration) -> Turn {
        Turn { answer, waited, refusal: Some(refusal) }
    }

    /// Whether the caller may act, now.
    pub const fn allowed(&self) -> bool {
        self.refusal.is_none()
    }

    /// The decision. When allowed it was made when the turn was given out, and its waits are told as of now.
    pub const fn decision(&self) -> Decision {
        self.answer.decision()
    }

    /// Who made it.
    pub const fn source(&self) -> Source {
        self.answer.source()
    }

    /// How long it took, the trips to the store included.
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Why the turn did not come. `None` when it did.
    pub const fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }
}
