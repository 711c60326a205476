//! Traces: calls as CSV, with the header `at_us,key,cost`.
//!
//! Times may go back; keys may be quoted as usual in CSV and hold any bytes.

use crate::records::{Fault, RECORD_LEN_MAX, Record, RecordError, Records};
use crate::values::{number, shown};
use sluicegate_core::Time;
use sluicegate_core::bounds::COUNT_MAX;
use std::fmt;
use std::io::{self, Read};

/// The header of a trace.
pub const HEADER: [&str; 3] = ["at_us", "key", "cost"];
/// The longest key in bytes.
pub const KEY_LEN_MAX: usize = 64 * 1024;

/// One call of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// When.
    pub at: Time,
    /// Whose.
    pub key: &'a [u8],
    /// How much.
    pub cost: u64,
}

/// Reads the calls of a trace one after another.
pub struct Trace<R> {
    records: Records<R>,
    /// Whether the last row was malformed, so that its end is unknown.
    is_stuck: bool,
}

/// Why a trace cannot be read on: one line with the line number, the value and what to write
/// instead.
#[derive(Debug)]
pub enum TraceError {
    /// The input could not be read.
    Io(io::Error),
    /// Something on this line is not a call.
    Bad {
        /// Counted from 1, the header being line 1.
        line: u64,
        /// What is wrong.
        problem: String,
        /// What to write instead.
        advice: &'static str,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io(error) => write!(f, "the trace cannot be read: {error}; check the file"),
            TraceError::Bad { line, problem, advice } => write!(f, "line {line}: {problem}; {advice}"),
        }
    }
}

impl std::error::Error for TraceError {}

impl From<RecordError> for TraceError {
    fn from(error: RecordError) -> TraceError {
        let (line, fault) = match error {
            RecordError::Io(error) => return TraceError::Io(error),
            RecordError::Bad(line, fault) => (line, fault),
        };
        let (problem, advice) = match fault {
            Fault::TooLong => (
                format!("the row is longer than {RECORD_LEN_MAX} bytes"),
                "shorten the key, and look for a quote that is not closed",
            ),
            Fault::QuoteNotClosed => {
                ("a quote is not closed".to_owned(), "close it, and double each quote inside a key")
            }
            Fault::TextAfterQuote => (
                "there is text after a closing quote".to_owned(),
                "double each quote inside a key, and look for one that is not closed",
            ),
        };
        TraceError::Bad { line, problem, advice }
    }
}

impl<R: Read> Trace<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When the header is missing or not `at_us,key,cost`.
    pub fn open(input: R) -> Result<Trace<R>, TraceError> {
        let mut records = Records::new(input);
        let found = records.next_record()?.map(|record| {
            let mut fields = [record.field(0), record.field(1), record.field(2)];
            // A byte order mark is how some spreadsheets begin a file.
            fields[0] = fields[0].strip_prefix(b"\xef\xbb\xbf").unwrap_or(fields[0]);
            let is_header = record.count() == HEADER.len() && fields == HEADER.map(str::as_bytes);
            (is_header, shown(record.bytes()))
        });
        let problem = match found {
            Some((true, _)) => return Ok(Trace { records, is_stuck: false }),
            Some((false, found)) => format!("the header should be at_us,key,cost, not {found}"),
            None => "the header at_us,key,cost is missing".to_owned(),
        };
        Err(TraceError::Bad { line: 1, problem, advice: "make at_us,key,cost the first line" })
    }

    /// The next call, `None` at the end.
    ///
    /// # Errors
    /// When the row is not a call: a field missing, a number negative or too large, a key too long.
    pub fn next_call(&mut self) -> Result<Option<Call<'_>>, TraceError> {
        match self.records.next_record() {
            Ok(Some(record)) => call(&record).map(Some),
            Ok(None) => Ok(None),
            Err(error) => {
                self.is_stuck = true;
                Err(error.into())
            }
        }
    }

    /// Passes over the row that [`Trace::next_call`] has just refused, so that the next one can be
    /// asked for. A row whose quotes are wrong is taken to end with its line: then a forgotten
    /// quote costs one row and not all others.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub fn pass_over(&mut self) -> Result<(), TraceError> {
        if self.is_stuck {
            self.records.skip_line()?;
            self.is_stuck = false;
        }
        Ok(())
    }
}

fn call<'a>(record: &Record<'a>) -> Result<Call<'a>, TraceError> {
    let bad = |problem: String, advice| TraceError::Bad { line: record.line(), problem, advice };
    if record.count() != HEADER.len() {
        let problem = match record.count() {
            1 => "the row has 1 field, not 3".to_owned(),
            count => format!("the row has {count} fields, not 3"),
        };
        return Err(bad(problem, "write at_us,key,cost, and quote a key that has commas"));
    }
    let (at, key, cost) = (record.field(0), record.field(1), record.field(2));
    let at = number("at_us", at, Time::MAX.as_micros())
        .map_err(|problem| bad(problem, "use whole microseconds since 1970, from 0 to 250000000000000000"))?;
    let cost = number("cost", cost, COUNT_MAX)
        .map_err(|problem| bad(problem, "use a whole number from 0 to 1000000000000"))?;
    if key.len() > KEY_LEN_MAX {
        let problem = format!("a key of {} bytes is above the maximum, {KEY_LEN_MAX}", key.len());
        return Err(bad(problem, "shorten it, or use a hash of it"));
    }
    // Cannot be cut: it is within the bound just checked.
    Ok(Call { at: Time::saturating_from_micros(at), key, cost })
}
