//! One value, from the file or from the text of a variable or flag.

use sluicegate::internal::grammar::{self, SyntaxError, quoted};
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::de::DeValue;

/// A value as the operator wrote it.
pub(super) enum Given<'a> {
    /// From the file, with a type.
    File(&'a DeValue<'a>),
    /// From a variable or a flag; parsed as the type of its setting.
    Text(&'a str),
}

/// The longest duration.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl<'a> Given<'a> {
    /// Reads a whole number within bounds.
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

    /// Reads text.
    pub(super) fn text(&self) -> Result<&'a str, SyntaxError> {
        match self {
            Given::Text(text) => Ok(text),
            Given::File(DeValue::String(text)) => Ok(text),
            Given::File(other) => {
                Err(SyntaxError::new(format!("{} is not text", shown(other)), "put it in quotes"))
            }
        }
    }

    /// Reads `true` or `false`.
    pub(super) fn bool(&self) -> Result<bool, SyntaxError> {
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

    /// Reads a duration above zero.
    pub(super) fn duration(&self) -> Result<Duration, SyntaxError> {
        self.duration_or_off()?.ok_or_else(|| {
            let problem = format!("{} is not a duration above zero", self.shown());
            SyntaxError::new(problem, "use one such as \"10s\"")
        })
    }

    /// Reads a duration; `None` for `off` and `0s`.
    pub(super) fn duration_or_off(&self) -> Result<Option<Duration>, SyntaxError> {
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
        let duration = Duration::from_micros(grammar::span(text)?.as_micros());
        if duration > DURATION_MAX {
            let problem = format!("{} is too long", quoted(text));
            return Err(SyntaxError::new(problem, "use at most 365d"));
        }
        Ok((!duration.is_zero()).then_some(duration))
    }

    /// Reads a list of texts. A variable or flag separates them by commas.
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

/// A value as the file writes it, or the type of a list or table.
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
