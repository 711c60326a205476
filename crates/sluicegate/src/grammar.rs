//! How a line of text is read: a name, a measure, options. Limits are written this way, and so are
//! the breakers, workloads and settings of this workspace's other crates.
//!
//! Every rejection is a [`SyntaxError`]: what is wrong with which word, and what to write instead.

mod measure;
mod suggest;

pub(crate) use measure::{Period, count_and_period, whole_rate};
pub use measure::{number, percent, rate, span};
pub(crate) use suggest::letters;
pub use suggest::{name, nearest};

use crate::limit::LimitError;
use sluicegate_core::bounds::{OutOfBounds, checked_count};
use std::fmt;

/// Longer texts are cut where an error repeats them, in characters.
pub(crate) const SHOWN_MAX: usize = 80;

/// What is wrong and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// What is wrong, with the value.
    pub problem: String,
    /// What to write instead.
    pub advice: String,
}

impl SyntaxError {
    /// A problem and its advice.
    pub fn new(problem: impl Into<String>, advice: impl Into<String>) -> SyntaxError {
        SyntaxError { problem: problem.into(), advice: advice.into() }
    }

    /// The error for the whole line that the word is in.
    pub fn in_line(self, text: &str) -> LimitError {
        LimitError::new(text, self)
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.advice)
    }
}

impl std::error::Error for SyntaxError {}

impl From<OutOfBounds> for SyntaxError {
    fn from(out: OutOfBounds) -> SyntaxError {
        SyntaxError::new(out.problem(), out.advice())
    }
}

/// A word in quotes, safe to print in one line.
pub fn quoted(word: &str) -> String {
    format!("\"{}\"", shown(word))
}

/// No word has a comma: not between options, and not in a number.
fn reject_comma(word: &str) -> Result<(), SyntaxError> {
    let Some((before, after)) = word.split_once(',') else { return Ok(()) };
    let in_number = before.ends_with(|letter: char| letter.is_ascii_digit())
        && after.starts_with(|letter: char| letter.is_ascii_digit());
    let advice = if in_number {
        "write large numbers as 1000, 1_000 or 1k"
    } else {
        "put only a space between options, no comma"
    };
    Err(SyntaxError::new(format!("{} has a comma", quoted(word)), advice))
}

/// The `name=value` words.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    takes: &'static str,
    given: Vec<Given<'a>>,
    /// The word that was taken last.
    taken: Option<&'a str>,
}

#[derive(Clone, Copy, Debug)]
struct Given<'a> {
    word: &'a str,
    name: &'a str,
    value: &'a str,
}

impl<'a> Options<'a> {
    /// Reads the options; `takes` is the advice that lists the known ones, each as `name=VALUE`.
    ///
    /// # Errors
    /// If a word is not an option, has no value, or repeats an option.
    pub fn read(
        takes: &'static str,
        words: impl Iterator<Item = &'a str>,
    ) -> Result<Options<'a>, SyntaxError> {
        let mut options = Options::none(takes);
        for word in words {
            options.push(word)?;
        }
        Ok(options)
    }

    pub(crate) fn none(takes: &'static str) -> Options<'a> {
        Options { takes, given: Vec::new(), taken: None }
    }

    pub(crate) fn push(&mut self, word: &'a str) -> Result<(), SyntaxError> {
        // Only at the end: a value may be a list of its own.
        if word.ends_with(',') {
            reject_comma(word)?;
        }
        let Some((name, value)) = word.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(SyntaxError::new(format!("{} is not an option", quoted(word)), self.takes));
        };
        if value.is_empty() {
            return Err(SyntaxError::new(format!("{} has no value", quoted(word)), self.takes));
        }
        if self.given.iter().any(|earlier| earlier.name == name) {
            let problem = format!("{} is given twice", quoted(name));
            return Err(SyntaxError::new(problem, "keep one of them"));
        }
        self.given.push(Given { word, name, value });
        Ok(())
    }

    /// Removes an option and returns its value.
    pub fn take(&mut self, name: &str) -> Option<&'a str> {
        let index = self.given.iter().position(|option| option.name == name)?;
        let option = self.given.remove(index);
        self.taken = Some(option.word);
        Some(option.value)
    }

    /// The option that was taken last, which an error in its value is about.
    pub(crate) fn taken(&self) -> Option<&'a str> {
        self.taken
    }

    /// Removes an option and returns its value as a number up to the largest count.
    ///
    /// # Errors
    /// If it is not a number, or out of bounds.
    pub fn number(&mut self, name: &'static str, least: u64) -> Result<Option<u64>, SyntaxError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        Ok(Some(checked_count(name, number(name, value)?, least)?))
    }

    /// Rejects the options that were not taken.
    ///
    /// # Errors
    /// If there are any: the error is about the first.
    pub fn reject_unknown(&self) -> Result<(), SyntaxError> {
        let Some(Given { name, .. }) = self.given.first() else { return Ok(()) };
        let known = self.takes.split(' ').filter_map(|word| Some(word.split_once('=')?.0));
        let advice = nearest(name, known)
            .map_or_else(|| self.takes.to_owned(), |meant| format!("did you mean {meant}=?"));
        Err(SyntaxError::new(format!("unknown option {}", quoted(name)), advice))
    }

    /// The first option that was not taken.
    pub(crate) fn first(&self) -> Option<&'a str> {
        self.given.first().map(|option| option.word)
    }
}

/// A text that is safe to print in one line: invisible characters are escaped, and a long text is
/// cut.
pub(crate) fn shown(text: &str) -> String {
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
