//! A limit that cannot be: one line with what was written, what is wrong with it, and what to write instead.

use std::fmt;

/// Longer texts are cut where an error repeats them, in characters.
const SHOWN_MAX: usize = 80;

/// Why a text is not a limit. It prints as one line: `sliding-log 5/60x: unknown unit "x"; use us ms s m h d ...`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitError {
    text: String,
    problem: String,
    advice: String,
}

impl LimitError {
    pub(super) fn new(text: &str, problem: impl Into<String>, advice: impl Into<String>) -> LimitError {
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

/// A text that is safe to print in one line: what cannot be seen is escaped, and it is cut where it gets long.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::new();
    let mut left = SHOWN_MAX;
    for letter in text.chars() {
        // Control characters, and those that would change the direction or the line.
        let escaped: String = match letter {
            '"' | '\'' | '\\' => letter.to_string(),
            _ => letter.escape_debug().collect(),
        };
        let width = escaped.chars().count();
        if width > left {
            shown.push('…');
            break;
        }
        left -= width;
        shown.push_str(&escaped);
    }
    shown
}
