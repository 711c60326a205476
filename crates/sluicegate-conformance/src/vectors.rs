//! Conformance vectors: cases with every field of every answer, in CSV that any language can read.
//!
//! The files are in `vectors/`, with a README that says how to use them. `cargo xtask vectors` writes them from the
//! model's answers, and a test says when they are stale.

mod generate;

pub use generate::generate;

use crate::compare::{Mismatch, Report};
use crate::subject::{Answer, Subject};
use sluicegate::Limit;
use sluicegate_core::Time;

/// Between the limits of a list.
pub const LIMITS_SEPARATOR: &str = " ; ";
/// The header of a vector file.
pub const HEADER: &str =
    "case,limits,at_us,key,cost,allowed,limit,remaining,retry_after_us,reset_after_us,delay_us";

/// The files by name, as they are in the repository.
pub const FILES: [(&str, &str); 9] = [
    ("token_bucket", include_str!("../vectors/token_bucket.csv")),
    ("leaky_bucket", include_str!("../vectors/leaky_bucket.csv")),
    ("fixed_window", include_str!("../vectors/fixed_window.csv")),
    ("sliding_log", include_str!("../vectors/sliding_log.csv")),
    ("sliding_window", include_str!("../vectors/sliding_window.csv")),
    ("min_interval", include_str!("../vectors/min_interval.csv")),
    ("pacer", include_str!("../vectors/pacer.csv")),
    ("smooth", include_str!("../vectors/smooth.csv")),
    ("several", include_str!("../vectors/several.csv")),
];

/// Runs all vectors on subjects that `make` makes, a fresh one for each case.
///
/// # Errors
/// At the first answer that is not the one in the file.
pub fn run<S: Subject>(mut make: impl FnMut(&[Limit], Time) -> S) -> Result<Report, Mismatch> {
    let mut report = Report::default();
    for (file, text) in FILES {
        let mut current: Option<(&str, S)> = None;
        let mut left_out = "";
        for (place, line) in text.lines().enumerate().skip(1) {
            let mismatch = |expected: &str, answered: String| Mismatch {
                case: format!("{file}.csv:{}", place + 1),
                trace: format!("{line}\n"),
                expected: expected.to_owned(),
                answered,
            };
            let row = Row::read(line).ok_or_else(|| mismatch("a row", "not a row".to_owned()))?;
            // What a subject cannot be asked, and the rest of that case.
            if row.at > S::latest() {
                left_out = row.case;
            }
            if row.case == left_out {
                continue;
            }
            let is_same_case = current.as_ref().is_some_and(|(case, _)| *case == row.case);
            if !is_same_case {
                let limits = limits(row.limits).map_err(|error| mismatch("limits", error))?;
                current = Some((row.case, make(&limits, row.at)));
                report.cases += 1;
            }
            let Some((_, subject)) = &mut current else { continue };
            let expected = row.answer.rounded_up(subject.tick());
            let answered = subject.check(row.at, row.key.as_bytes(), row.cost);
            if answered != expected {
                return Err(mismatch(&expected.to_string(), answered.to_string()));
            }
            report.checks += 1;
            report.denied += u64::from(!expected.allowed);
        }
    }
    Ok(report)
}

/// A line of a file. None of its fields needs quotes.
struct Row<'a> {
    case: &'a str,
    limits: &'a str,
    at: Time,
    key: &'a str,
    cost: u32,
    answer: Answer,
}

impl<'a> Row<'a> {
    fn read(line: &'a str) -> Option<Row<'a>> {
        let mut fields = line.splitn(6, ',');
        Some(Row {
            case: fields.next()?,
            limits: fields.next()?,
            at: Time::from_micros(fields.next()?.parse().ok()?)?,
            key: fields.next()?,
            cost: fields.next()?.parse().ok()?,
            answer: Answer::read(fields.next()?)?,
        })
    }
}

/// The limits of a list.
fn limits(text: &str) -> Result<Vec<Limit>, String> {
    text.split(LIMITS_SEPARATOR)
        .map(|limit| limit.parse::<Limit>().map_err(|error| error.to_string()))
        .collect()
}
