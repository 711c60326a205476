//! Access logs as traffic: common, combined and JSON lines.
//!
//! A line is a call: a field or several say whose it is, one says when, and one may say how much it
//! costs.

mod common;
mod json;
mod lines;
mod moment;

pub use json::{IP_FIELDS, TIME_FIELDS};
pub use lines::LINE_LEN_MAX;

use super::{BrokenLine, Call, Clock, Collector, Reading, Traffic, TrafficError};
use crate::trace::KEY_LEN_MAX;
use crate::values::{number, shown};
use common::Common;
use json::Json;
use lines::{Line, Lines};
use sluicegate_core::Time;
use sluicegate_core::bounds::COUNT_MAX;
use std::fmt;
use std::io::Read;
use std::str::FromStr;

/// This many lines are read to detect the format. The first ones may be broken, or what a
/// server said at its start.
const DETECT_LINES: usize = 20;

/// How a file begins that gzip has compressed.
const GZIP: &[u8] = b"\x1f\x8b";

/// How the lines of a log are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `ip ident user [time] "request" status bytes`, whatever follows.
    Common,
    /// As [`Format::Common`], followed by `"referer" "agent"`.
    Combined,
    /// One JSON object per line.
    Json,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Common => "common",
            Format::Combined => "combined",
            Format::Json => "json",
        })
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Format, FormatError> {
        let all = [Format::Common, Format::Combined, Format::Json];
        all.into_iter().find(|format| format.to_string() == text).ok_or_else(|| FormatError(text.to_owned()))
    }
}

/// A text that is not the name of a format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatError(String);

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a format of logs; use common, combined or json", shown(self.0.as_bytes()))
    }
}

impl std::error::Error for FormatError {}

/// Which fields say whose a call is, when it is and what it costs.
///
/// Common and combined logs have `ip` (also called `host` and `remote_addr`), `vhost` (if the log
/// has it), `ident`, `user`, `time`, `request`, `method`, `path` (up to a `?`), `url` (all of it),
/// `protocol`, `status` and `bytes`; combined ones `referer` and `agent` too. In JSON a field is
/// looked for by its whole name first and then as a path through objects, as in
/// `request.remote_ip`.
#[derive(Clone, Debug)]
pub struct Fields {
    key: Vec<String>,
    time: Option<String>,
    cost: Option<String>,
}

impl Fields {
    /// `key` is one name, or several joined by commas, whose values are then joined by a space. In
    /// JSON, `ip` is looked for in [`IP_FIELDS`], and the time in [`TIME_FIELDS`] if it is not
    /// named. A call costs 1 if no cost is named.
    pub fn new(key: &str, time: Option<&str>, cost: Option<&str>) -> Fields {
        let named = |name: &str| name.trim().to_owned();
        Fields { key: key.split(',').map(named).collect(), time: time.map(named), cost: cost.map(named) }
    }

    fn check(&self) -> Result<(), TrafficError> {
        let mut names = self.key.iter().chain(&self.time).chain(&self.cost);
        if names.any(String::is_empty) {
            let why =
                "a field without a name is asked for; write names such as ip, or ip,path for a key of two";
            return Err(TrafficError::Field(why.to_owned()));
        }
        Ok(())
    }
}

/// What is wrong with a line, and what to do about it.
#[derive(Debug)]
struct Problem {
    what: String,
    advice: &'static str,
}

/// What a line says. One is used for all of them.
#[derive(Debug)]
struct Row {
    at: Time,
    key: Vec<u8>,
    /// How many values the key is made of so far.
    key_values: usize,
    cost: u64,
}

impl Row {
    /// Joins another value to the key.
    fn add_key(&mut self, value: &[u8]) {
        if self.key_values > 0 {
            self.key.push(b' ');
        }
        self.key.extend_from_slice(value);
        self.key_values += 1;
    }
}

/// A cost out of that field. Servers write a dash when they have sent no bytes.
fn cost(name: &str, value: &[u8]) -> Result<u64, Problem> {
    if name == "bytes" && value == b"-" {
        return Ok(0);
    }
    let advice = "use a field with whole numbers from 0 to 1000000000000";
    number("cost", value, COUNT_MAX).map_err(|what| Problem { what, advice })
}

/// Reads the lines of one format.
enum Parser {
    Common(Common),
    Json(Box<Json>),
}

impl Parser {
    fn new(format: Format, fields: &Fields) -> Result<Parser, TrafficError> {
        Ok(match format {
            Format::Common | Format::Combined => Parser::Common(Common::new(format, fields)?),
            Format::Json => Parser::Json(Box::new(Json::new(fields))),
        })
    }

    fn read(&mut self, line: &[u8], row: &mut Row) -> Result<(), Problem> {
        (row.key_values, row.cost) = (0, 1);
        row.key.clear();
        match self {
            Parser::Common(common) => common.read(line, row)?,
            Parser::Json(json) => json.read(line, row)?,
        }
        if row.key.len() > KEY_LEN_MAX {
            let what = format!("a key of {} bytes is above the maximum, {KEY_LEN_MAX}", row.key.len());
            return Err(Problem { what, advice: "choose fewer fields or shorter ones" });
        }
        Ok(())
    }
}

/// Reads all calls of a log. If no format is given, it is found out from the first lines.
///
/// # Errors
/// When the input cannot be read, a field is asked for that the format does not have, the format
/// cannot be found out, no line is a call, there are too many, or, if every line has to be a call,
/// one is not.
pub fn read(
    input: impl Read,
    format: Option<Format>,
    fields: &Fields,
    reading: Reading,
) -> Result<Traffic, TrafficError> {
    fields.check()?;
    let mut collector = Collector::new(Clock::Utc, reading);
    let mut lines = Lines::new(input);
    let (format, first) = match format {
        Some(format) => (Some(format), FirstLines::new()),
        None => detect(&mut lines)?,
    };
    if let Some(format) = format {
        let mut parser = Parser::new(format, fields)?;
        let mut row = Row { at: Time::EPOCH, key: Vec::new(), key_values: 0, cost: 1 };
        for (number, text) in &first {
            take(Line { number: *number, text: text.as_deref() }, &mut parser, &mut row, &mut collector)?;
        }
        while let Some(line) = lines.next_line().map_err(TrafficError::Io)? {
            take(line, &mut parser, &mut row, &mut collector)?;
        }
    }
    // A server writes a line when it has answered, with the time at which it was asked: a slow
    // answer comes after quick ones that were asked for later. The limiter would have met them in
    // the order of their times.
    collector.sort();
    collector.finish("check that the log is the right one, and not empty")
}

/// Makes a call of a line, or passes over it.
fn take(
    line: Line<'_>,
    parser: &mut Parser,
    row: &mut Row,
    collector: &mut Collector,
) -> Result<(), TrafficError> {
    let read = match line.text {
        Some(text) => parser.read(text, row),
        None => Err(too_long()),
    };
    match read {
        Ok(()) => {
            let key = collector.key(&row.key)?;
            collector.push(Call { at: row.at, key, cost: row.cost })
        }
        Err(Problem { what, advice }) => {
            collector.broken(BrokenLine { line: line.number, problem: what, advice: advice.to_owned() })
        }
    }
}

fn too_long() -> Problem {
    let what = format!("the line is longer than {LINE_LEN_MAX} bytes");
    Problem { what, advice: "leave it out, or check that the file is a log" }
}

/// Lines that were looked at before the format was known, to be read again: at most
/// [`DETECT_LINES`].
type FirstLines = Vec<(u64, Option<Vec<u8>>)>;

/// The format of the first line that has one, and the lines up to that. There is none if there are
/// no lines.
fn detect<R: Read>(lines: &mut Lines<R>) -> Result<(Option<Format>, FirstLines), TrafficError> {
    let mut first = FirstLines::new();
    while first.len() < DETECT_LINES {
        let Some(line) = lines.next_line().map_err(TrafficError::Io)? else { break };
        let format = line.text.and_then(format_of);
        first.push((line.number, line.text.map(<[u8]>::to_vec)));
        if format.is_some() {
            return Ok((format, first));
        }
    }
    let Some((line, text)) = first.first() else { return Ok((None, first)) };
    let problem = match text {
        Some(text) if text.starts_with(GZIP) => {
            let problem = "this is compressed".to_owned();
            let advice = "hand it in as zcat access.log.gz | sluice simulate --log -".to_owned();
            return Err(TrafficError::Line(BrokenLine { line: *line, problem, advice }));
        }
        Some(text) => format!("{} is in no format of logs that is known", shown(text)),
        None => too_long().what,
    };
    let advice =
        "use --format common, combined or json; for a CSV with the header at_us,key,cost use --trace"
            .to_owned();
    Err(TrafficError::Line(BrokenLine { line: *line, problem, advice }))
}

fn format_of(line: &[u8]) -> Option<Format> {
    [Format::Json, Format::Combined, Format::Common].into_iter().find(|format| match format {
        Format::Json => Json::recognises(line),
        Format::Combined | Format::Common => Common::recognises(*format, line),
    })
}
