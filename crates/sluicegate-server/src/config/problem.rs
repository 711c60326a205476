//! What is wrong with a configuration, and where: one line each.

use std::fmt;
use std::ops::Range;

/// One thing that is wrong: `sluice.toml:12:9: what, and what to write instead`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Where in the file, to tell several in its order.
    offset: usize,
    line: String,
}

/// All that is wrong, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems(pub(super) Vec<Problem>);

impl Problem {
    /// About a file as a whole, a variable or a flag.
    pub(super) fn of(name: &str, says: impl fmt::Display) -> Problem {
        Problem { offset: 0, line: format!("{name}: {says}") }
    }
}

/// Collects what is wrong in a file.
pub(super) struct Found<'a> {
    name: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
}

impl<'a> Found<'a> {
    pub(super) fn nothing_in(name: &'a str, text: &'a str) -> Found<'a> {
        Found { name, text, problems: Vec::new() }
    }

    /// Something is wrong at this place.
    pub(super) fn wrong(&mut self, span: Range<usize>, says: impl fmt::Display) {
        let (line, column) = place(self.text, span.start);
        let line = format!("{}:{line}:{column}: {says}", self.name);
        self.problems.push(Problem { offset: span.start, line });
    }

    /// The line of a place, to point from one to another.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        place(self.text, span.start).0
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.problems.is_empty()
    }

    /// Fails if anything was found.
    pub(super) fn result(mut self) -> Result<(), Problems> {
        self.problems.sort_by_key(|problem| problem.offset);
        Problems::none_of(self.problems)
    }
}

/// Line and column of an offset in bytes, both from 1, columns in characters as editors count them.
fn place(text: &str, offset: usize) -> (usize, usize) {
    // Offsets come from the parser, and lie between characters.
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

impl Problems {
    /// Fails if there are any.
    pub(super) fn none_of(problems: Vec<Problem>) -> Result<(), Problems> {
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }

    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl fmt::Display for Problems {
    /// A line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.0.iter().enumerate() {
            let before = if place == 0 { "" } else { "\n" };
            write!(f, "{before}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_from_one_and_in_characters() {
        let text = "a = 1\nö = 2\n";
        for (offset, expected) in [(0, (1, 1)), (4, (1, 5)), (6, (2, 1)), (11, (2, 5)), (99, (3, 1))] {
            assert_eq!(place(text, offset), expected, "{offset}");
        }
    }
}
