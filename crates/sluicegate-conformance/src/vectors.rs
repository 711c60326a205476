//! Conformance vectors: cases with every field of every decision, in CSV that any language can
//! read.
//!
//! The files are in `vectors/`, with a README that explains how to use them. `cargo xtask vectors`
//! writes them from the model's decisions, and a test fails if they are stale.

mod budgets;
mod generate;

pub use budgets::{BUDGETS, generate_budgets, run_budgets};
pub use generate::generate;
use generate::{hand_written_lines, time};

use crate::compare::{Mismatch, Report};
use crate::subject::{Fields, Subject};
use sluicegate::Limit;
use sluicegate_core::Time;

/// Separates the limits of a list.
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
    ("all_of", include_str!("../vectors/all_of.csv")),
];

/// Runs all vectors, each case on a fresh subject from `make`.
///
/// # Errors
/// At the first decision that differs from the file.
pub fn run<S: Subject>(mut make: impl FnMut(&[Limit], Time) -> S) -> Result<Report, Mismatch> {
    let mut report = Report::default();
    for (file, text) in FILES {
        let mut current: Option<(&str, S)> = None;
        let mut skipped = "";
        for (index, line) in text.lines().enumerate().skip(1) {
            let mismatch = |expected: &str, actual: String| Mismatch {
                case: format!("{file}.csv:{}", index + 1),
                trace: format!("{line}\n"),
                expected: expected.to_owned(),
                actual,
            };
            let row = Row::read(line).ok_or_else(|| mismatch("a row", "not a row".to_owned()))?;
            // A time that the subject does not accept ends the case.
            if row.at > S::latest() {
                skipped = row.case;
            }
            if row.case == skipped {
                continue;
            }
            let is_same_case = current.as_ref().is_some_and(|(case, _)| *case == row.case);
            if !is_same_case {
                let limits = limits(row.limits).map_err(|error| mismatch("limits", error))?;
                current = Some((row.case, make(&limits, row.at)));
                report.cases += 1;
            }
            let Some((_, subject)) = &mut current else { continue };
            let expected = row.fields.rounded_up(subject.tick());
            let actual = subject.check(row.at, row.key.as_bytes(), row.cost);
            if actual != expected {
                return Err(mismatch(&expected.to_string(), actual.to_string()));
            }
            report.checks += 1;
            report.denied += u64::from(!expected.allowed);
        }
    }
    Ok(report)
}

/// A line of a file. No column needs quotes.
struct Row<'a> {
    case: &'a str,
    limits: &'a str,
    at: Time,
    key: &'a str,
    cost: u64,
    fields: Fields,
}

impl<'a> Row<'a> {
    fn read(line: &'a str) -> Option<Row<'a>> {
        let mut columns = line.splitn(6, ',');
        Some(Row {
            case: columns.next()?,
            limits: columns.next()?,
            at: Time::from_micros(columns.next()?.parse().ok()?)?,
            key: columns.next()?,
            cost: columns.next()?.parse().ok()?,
            fields: Fields::read(columns.next()?)?,
        })
    }
}

/// Parses the limits of a list.
fn limits(text: &str) -> Result<Vec<Limit>, String> {
    text.split(LIMITS_SEPARATOR)
        .map(|limit| limit.parse::<Limit>().map_err(|error| error.to_string()))
        .collect()
}
