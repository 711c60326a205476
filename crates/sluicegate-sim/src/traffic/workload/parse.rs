//! Reads a workload. It is written as a limit is: a name, a measure, options.

use super::{KEYS_MAX, NAMES, Shape, Workload, ZIPF_MAX};
use sluicegate::internal::grammar::{self, Options, SyntaxError, quoted, span};
use sluicegate_core::{Span, time::YEAR};
use std::fmt;
use std::str::FromStr;

/// The longest text that can be a workload, in bytes.
const TEXT_MAX: usize = 256;
/// The name of the key, or of the keys before their number.
const KEY_DEFAULT: &str = "caller";
/// The calls at an edge come within this part of the window, before it and again after it.
const EDGE_PART: u64 = 20;
/// The longest that a workload can last.
pub const LASTS_MAX: Span = Span::from_micros(10 * YEAR);

/// Why a text is not a workload, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadError {
    text: String,
    mistake: SyntaxError,
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workload {}: {}", quoted(&self.text), self.mistake)
    }
}

impl std::error::Error for WorkloadError {}

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Workload, WorkloadError> {
        let refuse = |mistake| WorkloadError { text: text.to_owned(), mistake };
        if text.len() > TEXT_MAX {
            let problem = format!("its {} bytes are above the maximum, {TEXT_MAX}", text.len());
            return Err(refuse(SyntaxError::new(problem, "write one workload, such as poisson 20/s")));
        }
        workload(text).map_err(refuse)
    }
}

fn workload(text: &str) -> Result<Workload, SyntaxError> {
    let mut words = text.split_ascii_whitespace();
    let Some(word) = words.next() else {
        return Err(SyntaxError::new("it is empty", "write one, such as poisson 20/s"));
    };
    let name = grammar::name("workload", word, &NAMES)?;
    let measure = words.next().unwrap_or_default();
    if measure.is_empty() || measure.contains('=') {
        let problem = format!("{name} needs its rate right after it");
        return Err(SyntaxError::new(problem, format!("write {name} 20/s")));
    }
    if measure
        .split('/')
        .next()
        .is_some_and(|count| !count.is_empty() && count.bytes().all(|digit| digit == b'0'))
    {
        return Err(SyntaxError::new("a rate of 0 makes no calls", "use at least 1, such as 1/s"));
    }
    let rate = grammar::rate(measure)?;
    let mut options = Options::read(takes(name), words)?;
    let shape = match name {
        "steady" => Shape::Steady(rate),
        "burst" => Shape::Burst(rate),
        "poisson" => Shape::Poisson(rate),
        "on-off" => {
            let on = length(&mut options, "on")?.unwrap_or(rate.period());
            Shape::OnOff { rate, on, off: length(&mut options, "off")?.unwrap_or(on) }
        }
        "ramp" => Shape::Ramp { from: options.take("from").map(grammar::rate).transpose()?, to: rate },
        _ => {
            // At least a microsecond, as otherwise none would come before the edge.
            let usual = Span::from_micros((rate.period().as_micros() / EDGE_PART).max(1));
            let spread = length(&mut options, "spread")?.unwrap_or(usual);
            if spread > rate.period() {
                let problem = format!("spread={spread} is longer than the window, {}", rate.period());
                return Err(SyntaxError::new(problem, "use a part of the window"));
            }
            Shape::Edge { rate, spread }
        }
    };
    let workload = Workload {
        shape,
        lasts: length(&mut options, "for")?,
        after: length(&mut options, "after")?.unwrap_or(Span::ZERO),
        cost: options.number("cost", 0)?.unwrap_or(1),
        name: options.take("key").unwrap_or(KEY_DEFAULT).to_owned(),
        keys: keys(&mut options)?,
        zipf: zipf(&mut options)?,
    };
    options.reject_unknown()?;
    if workload.zipf.is_some() && workload.keys == 1 {
        return Err(SyntaxError::new(
            "zipf= says how busy each of several keys is",
            "add keys=1000, or leave zipf= out",
        ));
    }
    Ok(workload)
}

fn length(options: &mut Options<'_>, name: &'static str) -> Result<Option<Span>, SyntaxError> {
    let Some(word) = options.take(name) else { return Ok(None) };
    let length = span(word)?;
    if length == Span::ZERO || length > LASTS_MAX {
        let problem = format!("{name}={word} is not from 1us to {LASTS_MAX}");
        return Err(SyntaxError::new(problem, format!("write {name}=10s")));
    }
    Ok(Some(length))
}

fn keys(options: &mut Options<'_>) -> Result<u32, SyntaxError> {
    let Some(word) = options.take("keys") else { return Ok(1) };
    match word.parse::<u32>() {
        Ok(keys @ 1..=KEYS_MAX) => Ok(keys),
        _ => Err(SyntaxError::new(
            format!("keys={} is not a number from 1 to {KEYS_MAX}", quoted(word)),
            "write how many callers there are, such as keys=1000",
        )),
    }
}

fn zipf(options: &mut Options<'_>) -> Result<Option<f64>, SyntaxError> {
    let Some(word) = options.take("zipf") else { return Ok(None) };
    match word.parse::<f64>() {
        Ok(exponent) if (0.0..=ZIPF_MAX).contains(&exponent) => Ok(Some(exponent)),
        _ => Err(SyntaxError::new(
            format!("zipf={} is not a number from 0 to {ZIPF_MAX}", quoted(word)),
            "write zipf=1.1: 0 makes all keys alike, 1 is usual on the web, more is steeper",
        )),
    }
}

/// The options of a workload.
fn takes(name: &str) -> &'static str {
    match name {
        "on-off" => "on-off takes on=10s off=10s for=10min after=10s cost=N key=NAME keys=N zipf=1.1",
        "ramp" => "ramp takes from=10/s for=10min after=10s cost=N key=NAME keys=N zipf=1.1",
        "edge" => "edge takes spread=1s for=10min after=10s cost=N key=NAME keys=N zipf=1.1",
        _ => "steady, burst and poisson take for=10min after=10s cost=N key=NAME keys=N zipf=1.1",
    }
}
