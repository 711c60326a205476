//! What the parsers of breakers, bulkheads, retries and adaptive limits have in common: each is one
//! line of text.

use sluicegate::LimitError;
use sluicegate::internal::grammar::SyntaxError;
use std::str::FromStr;

/// The maximum length of a line in bytes. The longest sensible line is below 150.
const TEXT_MAX: usize = 256;

/// A configuration that can be written as one line of text: of a breaker, a bulkhead or retries.
pub trait Config: FromStr<Err = LimitError> {}

/// A configuration, or the line of text that describes it.
pub trait IntoConfig<R> {
    /// Returns the configuration.
    ///
    /// # Errors
    /// If the text is not a valid line.
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

/// Parses a line. `what` and `advice` appear in the error if the line is too long.
pub(crate) fn read<T>(
    text: &str,
    what: &str,
    advice: &str,
    parse: impl FnOnce(&str) -> Result<T, SyntaxError>,
) -> Result<T, LimitError> {
    let parsed = if text.len() > TEXT_MAX {
        let problem = format!("{what} of {} bytes is above the maximum, {TEXT_MAX}", text.len());
        Err(SyntaxError::new(problem, advice))
    } else {
        parse(text)
    };
    parsed.map_err(|error| error.in_line(text))
}
