//! Traces: calls as CSV, with the header `at_us,key,cost`.
//!
//! Times may go back; keys may be quoted as usual in CSV and hold any bytes.

use crate::records::{FIELDS_MAX, RECORD_LEN_MAX, Record, RecordError, Records};
use sluicegate::core::Time;
use sluicegate::core::bounds::COUNT_MAX;
use std::fmt;
use std::io::{self, Read};

/// The header of a trace.
pub const HEADER: [&str; 3] = ["at_us", "key", "cost"];
/// The longest key in bytes.
pub const KEY_LEN_MAX: usize = 64 * 1024;

/// Longer values are cut where an error repeats them.
const SHOWN_MAX: usize = 40;

/// One call of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// When.
    pub at: Time,
    /// Whose.
    pub key: &'a [u8],
    /// How much.
    pub cost: u32,
}

/// Reads the calls of a trace one after another.
pub struct Trace<R> {
    records: Records<R>,
}

/// Why a trace cannot be read on: one line with the line number, the value and what to write instead.
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
        match error {
            RecordError::Io(error) => TraceError::Io(error),
            RecordError::TooLong(line) => TraceError::Bad {
                line,
                problem: format!("the row is longer than {RECORD_LEN_MAX} bytes"),
                advice: "shorten the key, and look for a quote that is not closed",
            },
            RecordError::TooManyFields(line) => TraceError::Bad {
                line,
                problem: format!("the row has more than {FIELDS_MAX} fields"),
                advice: "write at_us,key,cost, and quote a key that has commas",
            },
        }
    }
}

impl<R: Read> Trace<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When the header is missing or not `at_us,key,cost`.
    pub fn open(input: R) -> Result<Trace<R>, TraceError> {
        let mut records = Records::new(input);
        let is_header = records.next_record()?.is_some_and(|record| {
            // A byte order mark is how some spreadsheets begin a file.
            let first = record.field(0);
            let first = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
            let fields = [first, record.field(1), record.field(2)];
            record.len() == HEADER.len() && fields == HEADER.map(str::as_bytes)
        });
        if is_header {
            Ok(Trace { records })
        } else {
            let problem = "the header at_us,key,cost is missing".to_owned();
            Err(TraceError::Bad { line: 1, problem, advice: "make it the first line" })
        }
    }

    /// The next call, `None` at the end.
    ///
    /// # Errors
    /// When the row is not a call: a field missing, a number negative or too large, a key too long.
    pub fn next_call(&mut self) -> Result<Option<Call<'_>>, TraceError> {
        match self.records.next_record()? {
            Some(record) => call(&record).map(Some),
            None => Ok(None),
        }
    }
}

fn call<'a>(record: &Record<'a>) -> Result<Call<'a>, TraceError> {
    let bad = |problem: String, advice| TraceError::Bad { line: record.line(), problem, advice };
    if record.len() != HEADER.len() {
        let problem = format!("the row has {} of 3 fields", record.len());
        return Err(bad(problem, "write at_us,key,cost, and quote a key that has commas"));
    }
    let (at, key, cost) = (record.field(0), record.field(1), record.field(2));
    let Some(at) = number(at).and_then(Time::from_micros) else {
        let problem = format!("at_us {} is not a time", shown(at));
        return Err(bad(problem, "use whole microseconds since 1970, from 0 to 253402300799999999"));
    };
    let Some(cost) = number(cost).and_then(|cost| u32::try_from(cost).ok()).filter(|&cost| cost <= COUNT_MAX)
    else {
        let problem = format!("cost {} is not a cost", shown(cost));
        return Err(bad(problem, "use a whole number from 0 to 1000000000"));
    };
    if key.len() > KEY_LEN_MAX {
        let problem = format!("a key of {} bytes is above the most, {KEY_LEN_MAX}", key.len());
        return Err(bad(problem, "shorten it, or use a hash of it"));
    }
    Ok(Call { at, key, cost })
}

/// A whole number of decimal digits, up to 19 of them.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    let mut number = 0_u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Cannot wrap: 19 digits are below 2^64.
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    Some(number)
}

/// A value in quotes, cut and with anything unprintable escaped.
fn shown(value: &[u8]) -> String {
    let cut = value.get(..SHOWN_MAX).map_or((value, ""), |cut| (cut, "…"));
    format!("\"{}{}\"", cut.0.escape_ascii(), cut.1)
}
