//! Parses and prints retries: `retry 2 budget=10%`.

use super::budget::{BACKOFF_DEFAULT, FLOOR_DEFAULT, MAX_BACKOFF_DEFAULT, PERCENT_DEFAULT, RetryConfig};
use crate::text::{Config, read};
use sluicegate::LimitError;
use sluicegate::internal::grammar::{Options, SyntaxError, name, number, percent, span};
use std::fmt;
use std::str::FromStr;

const TAKES: &str = "retry takes budget=PERCENT floor=N backoff=DURATION max-backoff=DURATION";

impl Config for RetryConfig {}

impl FromStr for RetryConfig {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<RetryConfig, LimitError> {
        read(text, "a retry", "write one, such as retry 2 budget=10%", config)
    }
}

fn config(text: &str) -> Result<RetryConfig, SyntaxError> {
    let mut words = text.split_ascii_whitespace();
    let Some(word) = words.next() else {
        return Err(SyntaxError::new("the retry is empty", "write one, such as retry 2 budget=10%"));
    };
    name("word", word, &["retry"])?;
    let Some(max_retries) = words.next().filter(|word| !word.contains('=')) else {
        return Err(SyntaxError::new("retry needs the number of retries right after it", "write retry 2"));
    };
    let retry = RetryConfig::new(number("count", max_retries)?)?;
    let mut options = Options::read(TAKES, words)?;
    let budget = options.take("budget").map(|word| percent("budget", word)).transpose()?;
    let floor = options.take("floor").map(|word| number("floor", word)).transpose()?;
    let backoff = options.take("backoff").map(span).transpose()?;
    let max_backoff = options.take("max-backoff").map(span).transpose()?;
    options.reject_unknown()?;
    let (first, max) = (backoff.unwrap_or(BACKOFF_DEFAULT), max_backoff.unwrap_or(MAX_BACKOFF_DEFAULT));
    let retry = retry.with_budget(
        budget.unwrap_or(u64::from(PERCENT_DEFAULT)),
        floor.unwrap_or(u64::from(FLOOR_DEFAULT)),
    )?;
    if first > max {
        let problem = format!("backoff={first} is above max-backoff={max}");
        return Err(SyntaxError::new(problem, format!("add max-backoff={first}, or more")));
    }
    Ok(retry.with_backoff(first, max)?)
}

impl fmt::Display for RetryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry = self;
        write!(f, "retry {}", retry.max_retries())?;
        if retry.percent() != PERCENT_DEFAULT {
            write!(f, " budget={}%", retry.percent())?;
        }
        if retry.floor() != FLOOR_DEFAULT {
            write!(f, " floor={}", retry.floor())?;
        }
        if retry.backoff() != BACKOFF_DEFAULT {
            write!(f, " backoff={}", retry.backoff())?;
        }
        if retry.max_backoff() != MAX_BACKOFF_DEFAULT {
            write!(f, " max-backoff={}", retry.max_backoff())?;
        }
        Ok(())
    }
}
