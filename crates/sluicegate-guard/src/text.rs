//! Breakers, bulkheads, retries and adaptive limits as one line of text each: what reading them has in common.

use sluicegate::LimitError;
use sluicegate::internal::grammar::SyntaxError;
use std::str::FromStr;

/// The longest line, in bytes. The longest sensible one is below 150.
const TEXT_MAX: usize = 256;

/// What can be written as one line of text and given to a builder: the rules of a breaker, a bulkhead or retries.
pub trait Config: FromStr<Err = LimitError> {}

/// Rules, or the line of text that says them.
pub trait IntoConfig<R> {
    /// The rules.
    ///
    /// # Errors
    /// When a text is not a valid line.
    fn into_config(self) -> Result<R, LimitError>;
}

impl<R: Config> IntoConfig<R> for &str {
    fn into_config(self) -> Result<R, LimitError> {
        self.parse()
    }
}

impl<R: Config> IntoConfig<R> for &String {
    fn into_config(self) -> Result<R, LimitError> {
        self.parse()
    }
}

impl<R: Config> IntoConfig<R> for R {
    fn into_config(self) -> Result<R, LimitError> {
        Ok(self)
    }
}

/// Reads a line. `what` it should be and the `advice` are for one that is too long.
pub(crate) fn read<T>(
    text: &str,
    what: &str,
    advice: &str,
    parse: impl FnOnce(&str) -> Result<T, SyntaxError>,
) -> Result<T, LimitError> {
    let parsed = if text.len() > TEXT_MAX {
        let problem = format!("{what} of {} bytes is above the most, {TEXT_MAX}", text.len());
        Err(SyntaxError::new(problem, advice))
    } else {
        parse(text)
    };
    parsed.map_err(|mistake| mistake.in_line(text))
}
