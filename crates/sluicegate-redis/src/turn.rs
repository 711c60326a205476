//! What came of waiting for a turn.

use crate::answer::{Answer, Source};
use sluicegate::Decision;
use std::fmt;
use std::time::Duration;

/// The end of a wait: the caller may act now, or is told why not. In the words of the library in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a call whose turn did not come must not happen: ask `allowed()`"]
pub struct Turn {
    answer: Answer,
    waited: Duration,
    refusal: Option<Refusal>,
}

/// Why a turn did not come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// It would have come too late.
    TooLong,
    /// So many wait already that one more may not.
    LineFull,
    /// The cost is above the limit: no wait helps.
    Never,
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::TooLong => "the turn would come too late",
            Refusal::LineFull => "too many are waiting already",
            Refusal::Never => "the cost is above the limit, so no wait helps",
        })
    }
}
