//! Why a text is not a limit: one line with the text, what is wrong with it, and what to write
//! instead.

use crate::grammar::{SHOWN_MAX, SyntaxError, shown};
use std::fmt;
use std::ops::Range;

/// Why a text is not a limit, a list of limits, or another line of text in the same grammar.
///
/// It prints as one line that names the offending word:
///
/// ```text
/// sliding-log 5/60x: unknown unit "x"; use us ms s min h d ...
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitError {
    /// The text, or the part of a long one that shows the word.
    text: String,
    error: SyntaxError,
    position: Option<Range<usize>>,
}

impl LimitError {
    pub(crate) fn new(text: &str, error: SyntaxError) -> LimitError {
        LimitError { text: shown(text), error, position: None }
    }

    /// An error about `word` of the limit `part` of the whole `text`. The three are slices of one
    /// text.
    pub(super) fn at(text: &str, part: &str, word: &str, error: SyntaxError) -> LimitError {
        let offset = |slice: &str| slice.as_ptr().addr().saturating_sub(text.as_ptr().addr());
        let (part, word) = (offset(part), offset(word)..offset(word) + word.len());
        let ends_in_view =
            |from: usize| text.get(from..word.end).is_none_or(|before| before.chars().count() <= SHOWN_MAX);
        // A long text is shown from the limit that has the word, a long limit from the word.
        let shown = if ends_in_view(0) {
            shown(text)
        } else {
            let from = if ends_in_view(part) { part } else { word.start };
            let elided = if from > 0 { "… " } else { "" };
            format!("{elided}{}", shown(text.get(from..).unwrap_or_default()))
        };
        LimitError { text: shown, error, position: Some(word) }
    }

    /// Where the offending word is in the text that was parsed, in bytes: a word, or a whole limit
    /// if its words contradict each other.
    ///
    /// ```
    /// use sluicegate::Limit;
    ///
    /// let text = "token-bucket 10/s + sliding-log 5/60x";
    /// let error = Limit::parse_list(text).unwrap_err();
    /// assert_eq!(&text[error.position().unwrap()], "5/60x");
    /// ```
    pub fn position(&self) -> Option<Range<usize>> {
        self.position.clone()
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, error, .. } = self;
        if text.is_empty() { write!(f, "{error}") } else { write!(f, "{text}: {error}") }
    }
}

impl std::error::Error for LimitError {}
