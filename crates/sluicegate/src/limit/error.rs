//! A limit that cannot be: one line with what was written, what is wrong with it, and what to write instead.

use crate::grammar::shown;
use std::fmt;

/// Why a text is not a limit, or another line of text in the same grammar. It prints as one line: `sliding-log 5/60x: unknown unit "x"; use us ms s m h d ...`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitError {
    text: String,
    problem: String,
    advice: String,
}

impl LimitError {
    pub(crate) fn new(text: &str, problem: impl Into<String>, advice: impl Into<String>) -> LimitError {
        LimitError { text: shown(text), problem: problem.into(), advice: advice.into() }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, problem, advice } = self;
        if text.is_empty() {
            write!(f, "{problem}; {advice}")
        } else {
            write!(f, "{text}: {problem}; {advice}")
        }
    }
}

impl std::error::Error for LimitError {}
