//! Errors of a configuration and their positions: one line each.

use std::fmt;
use std::ops::Range;

/// One error: `sluice.toml:12:9: what is wrong; what to write instead`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The offset in the file, to sort errors by.
    offset: usize,
    line: String,
}

/// All errors of a configuration, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigErrors(pub(super) Vec<ConfigError>);

impl ConfigError {
    /// An error of a whole file, a variable or a flag.
    pub(super) fn of(name: &str, message: impl fmt::Display) -> ConfigError {
        ConfigError { offset: 0, line: format!("{name}: {message}") }
    }
}

/// Collects the errors of a file.
pub(super) struct Diagnostics<'a> {
    name: &'a str,
    text: &'a str,
    errors: Vec<ConfigError>,
}

impl<'a> Diagnostics<'a> {
    pub(super) fn new(name: &'a str, text: &'a str) -> Diagnostics<'a> {
        Diagnostics { name, text, errors: Vec::new() }
    }

    /// Adds an error at a span of the text.
    pub(super) fn add(&mut self, span: Range<usize>, message: impl fmt::Display) {
        let (line, column) = position(self.text, span.start);
        let line = format!("{}:{line}:{column}: {message}", self.name);
        self.errors.push(ConfigError { offset: span.start, line });
    }

    /// The line of a span, to refer to it from another error.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        position(self.text, span.start).0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Fails if there are errors.
    pub(super) fn result(mut self) -> Result<(), ConfigErrors> {
        self.errors.sort_by_key(|error| error.offset);
        ConfigErrors::none_of(self.errors)
    }
}

/// The line and column of a byte offset, both from 1. Columns count characters, as editors do.
fn position(text: &str, offset: usize) -> (usize, usize) {
    // The parser's offsets are on character boundaries.
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

impl ConfigErrors {
    /// Fails if there are any errors.
    pub(super) fn none_of(errors: Vec<ConfigError>) -> Result<(), ConfigErrors> {
        if errors.is_empty() { Ok(()) } else { Err(ConfigErrors(errors)) }
    }

    /// The errors, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl fmt::Display for ConfigErrors {
    /// One line per error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let before = if index == 0 { "" } else { "\n" };
            write!(f, "{before}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let text = "a = 1\nö = 2\n";
        for (offset, expected) in [(0, (1, 1)), (4, (1, 5)), (6, (2, 1)), (11, (2, 5)), (99, (3, 1))] {
            assert_eq!(position(text, offset), expected, "{offset}");
        }
    }
}
