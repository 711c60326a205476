//! One value, from the file or as the text of a variable or flag, read as what a setting takes.

use sluicegate::internal::grammar::{self, SyntaxError, quoted};
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::de::DeValue;

/// A value as it was given.
pub(super) enum Given<'a> {
    /// By a file, with its type.
    File(&'a DeValue<'a>),
    /// By a variable or a flag: it is of whatever type is asked for.
    Text(&'a str),
}

/// A length of time above this is meant as never.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl<'a> Given<'a> {
    /// A whole number within bounds.
    pub(super) fn number(&self, within: &RangeInclusive<u64>) -> Result<u64, SyntaxError> {
        let (least, most) = (within.start(), within.end());
        let advice = format!("use a whole number from {least} to {most}");
        let number = match self {
            Given::Text(text) => text.parse().ok(),
            Given::File(DeValue::Integer(digits)) => {
                u64::from_str_radix(digits.as_str(), digits.radix()).ok()
            }
            Given::File(other) => {
                return Err(SyntaxError::new(
                    format!("{} is not a number", shown(other)),
                    format!("{advice}, without quotes"),
                ));
            }
        };
        let in_bounds = number.filter(|number| within.contains(number));
        in_bounds.ok_or_else(|| SyntaxError::new(format!("{} is out of bounds", self.shown()), advice))
    }

    /// Text.
    pub(super) fn text(&self) -> Result<&'a str, SyntaxError> {
        match self {
            Given::Text(text) => Ok(text),
            Given::File(DeValue::String(text)) => Ok(text),
            Given::File(other) => {
                Err(SyntaxError::new(format!("{} is not text", shown(other)), "put it in quotes"))
            }
        }
    }

    /// True or false.
    pub(super) fn yes_no(&self) -> Result<bool, SyntaxError> {
        match self {
            Given::Text("true") => Ok(true),
            Given::Text("false") => Ok(false),
            Given::File(DeValue::Boolean(yes)) => Ok(*yes),
            _ => {
                let problem = format!("{} is neither true nor false", self.shown());
                Err(SyntaxError::new(problem, "write true or false, without quotes"))
            }
        }
    }

    /// A length of time above zero.
    pub(super) fn wait(&self) -> Result<Duration, SyntaxError> {
        self.wait_or_off()?.ok_or_else(|| {
            let problem = format!("{} would let nobody in", self.shown());
            SyntaxError::new(problem, "use a time above zero, such as \"10s\"")
        })
    }

    /// A length of time; `None` for none, written as `off` or `0s`.
    pub(super) fn wait_or_off(&self) -> Result<Option<Duration>, SyntaxError> {
        let text = match self {
            Given::File(DeValue::Integer(number)) => {
                let problem = format!("{} has no unit", number.as_str());
                return Err(SyntaxError::new(problem, format!("write \"{}s\" for seconds", number.as_str())));
            }
            _ => self.text()?,
        };
        if text == "off" {
            return Ok(None);
        }
        let wait = Duration::from_micros(grammar::span(text)?.as_micros());
        if wait > WAIT_MAX {
            let problem = format!("{} is above the maximum, 365d", quoted(text));
            return Err(SyntaxError::new(problem, "use at most 365d"));
        }
        Ok((!wait.is_zero()).then_some(wait))
    }

    /// A list of texts; commas divide them where there is no list.
    pub(super) fn texts(&self) -> Result<Vec<&'a str>, SyntaxError> {
        match self {
            Given::Text(text) => Ok(text.split(',').map(str::trim).collect()),
            Given::File(DeValue::Array(values)) => {
                values.iter().map(|value| Given::File(value.get_ref()).text()).collect()
            }
            Given::File(other) => Err(SyntaxError::new(
                format!("{} is not a list", shown(other)),
                "write it in brackets, such as [\"limits.example.com\"]",
            )),
        }
    }

    fn shown(&self) -> String {
        match self {
            Given::Text(text) => quoted(text),
            Given::File(value) => shown(value),
        }
    }
}

/// A value as it stands in the file, or its type if it is a long one.
pub(super) fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
