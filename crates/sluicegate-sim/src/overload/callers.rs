//! How callers call: for how long they wait, and whether they try again.

use super::LineError;
use sluicegate::internal::grammar::{Options, SyntaxError, number, span};
use sluicegate_core::Span;
use sluicegate_core::time::SECOND;
use std::fmt;
use std::str::FromStr;

/// The most that a caller tries again.
pub const RETRIES_MAX: u32 = 10;
/// How long callers wait by default.
const TIMEOUT_DEFAULT: Span = Span::from_micros(SECOND);
/// The longest that they wait, and the longest that they pause.
const WAIT_MAX: Span = Span::from_micros(3_600 * SECOND);

/// Callers; made by `"timeout=1s retries=2".parse()`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Callers {
    /// A caller gives up after this long without an answer.
    pub timeout: Span,
    /// How often a caller retries a call that failed.
    pub retries: u32,
    /// How long it waits before each retry.
    pub backoff: Span,
}

impl Default for Callers {
    fn default() -> Callers {
        Callers { timeout: TIMEOUT_DEFAULT, retries: 0, backoff: Span::ZERO }
    }
}

impl FromStr for Callers {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Callers, LineError> {
        LineError::check_length("callers", text, "timeout=1s retries=2")?;
        callers(text).map_err(|mistake| LineError::new("callers", text, mistake))
    }
}

fn callers(text: &str) -> Result<Callers, SyntaxError> {
    let takes = "callers take timeout=DURATION retries=N backoff=DURATION";
    let mut options = Options::read(takes, text.split_ascii_whitespace())?;
    let mut callers = Callers::default();
    if let Some(word) = options.take("timeout") {
        callers.timeout = wait("timeout", word)?;
    }
    if let Some(word) = options.take("retries") {
        let retries = number("retries", word)?;
        callers.retries =
            u32::try_from(retries).ok().filter(|retries| *retries <= RETRIES_MAX).ok_or_else(|| {
                SyntaxError::new(
                    format!("retries={retries} is above the maximum, {RETRIES_MAX}"),
                    "use fewer, 2 is many",
                )
            })?;
    }
    if let Some(word) = options.take("backoff") {
        callers.backoff = wait("backoff", word)?;
    }
    options.reject_unknown()?;
    Ok(callers)
}

fn wait(what: &str, word: &str) -> Result<Span, SyntaxError> {
    let wait = span(word)?;
    if wait == Span::ZERO || wait > WAIT_MAX {
        let problem = format!("{what}={word} is not from 1us to {WAIT_MAX}");
        return Err(SyntaxError::new(problem, format!("use a usual one, such as {what}=1s")));
    }
    Ok(wait)
}

impl fmt::Display for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timeout={}", self.timeout)?;
        if self.retries > 0 {
            write!(f, " retries={}", self.retries)?;
        }
        if self.backoff > Span::ZERO { write!(f, " backoff={}", self.backoff) } else { Ok(()) }
    }
}
