//! Parses and prints a breaker's configuration.
//!
//! ```text
//! breaker 50%/10s min=20 open=5s probes=1 probe-ttl=5s slow=2s slow-rate=100% mode=metrics-only
//! breaker 50%/100calls
//! ```

use super::machine::{
    BreakerConfig, OPEN_DEFAULT, PROBES_DEFAULT, SLOW_RATE_DEFAULT, Slow, WINDOW_CALLS_MAX, Window,
};
use crate::text::{Config, read};
use sluicegate::LimitError;
use sluicegate::internal::grammar::{Options, SyntaxError, name, number, percent, quoted, span};
use sluicegate::internal::unit;
use std::fmt;
use std::str::FromStr;

const TAKES: &str = "breaker takes min=N open=DURATION probes=N probe-ttl=DURATION slow=DURATION slow-rate=PERCENT mode=metrics-only";

impl Config for BreakerConfig {}

impl FromStr for BreakerConfig {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<BreakerConfig, LimitError> {
        read(text, "a breaker", "write one, such as breaker 50%/10s", config)
    }
}

fn config(text: &str) -> Result<BreakerConfig, SyntaxError> {
    let mut words = text.split_ascii_whitespace();
    let Some(word) = words.next() else {
        return Err(SyntaxError::new("the breaker is empty", "write one, such as breaker 50%/10s"));
    };
    name("word", word, &["breaker"])?;
    let measure = words.next().unwrap_or_default();
    if measure.is_empty() || measure.contains('=') {
        return Err(SyntaxError::new("breaker needs its measure right after it", "write breaker 50%/10s"));
    }
    let Some((rate, window)) = measure.split_once('/') else {
        let problem = format!("{} is not PERCENT/WINDOW", quoted(measure));
        return Err(SyntaxError::new(
            problem,
            "write the rate and the window without a space, such as 50%/10s or 50%/100calls",
        ));
    };
    let rate = percent("failure rate", rate)?;
    let mut config = BreakerConfig::new(rate, self::window(window)?)?;

    let mut options = Options::read(TAKES, words)?;
    if let Some(min) = options.take("min") {
        config = config.with_min(number("min", min)?)?;
    }
    if let Some(open) = options.take("open") {
        config = config.with_open(span(open)?)?;
    }
    if let Some(probes) = options.take("probes") {
        config = config.with_probes(number("probes", probes)?)?;
    }
    if let Some(ttl) = options.take("probe-ttl") {
        config = config.with_probe_ttl(span(ttl)?)?;
    }
    let slow = options.take("slow").map(span).transpose()?;
    let slow_rate = options.take("slow-rate").map(|word| percent("slow-rate", word)).transpose()?;
    match (slow, slow_rate) {
        (Some(longer_than), rate) => {
            config = config.with_slow(longer_than, rate.unwrap_or(u64::from(SLOW_RATE_DEFAULT)))?;
        }
        (None, Some(_)) => {
            let problem = "slow-rate= has no effect without slow=";
            return Err(SyntaxError::new(problem, "add slow=, such as slow=2s, or omit slow-rate="));
        }
        (None, None) => {}
    }
    match options.take("mode") {
        None => {}
        Some("metrics-only") => config = config.with_metrics_only(true),
        Some(other) => {
            let problem = format!("unknown mode={}", quoted(other));
            return Err(SyntaxError::new(problem, "use mode=metrics-only, or omit it"));
        }
    }
    options.reject_unknown()?;
    Ok(config)
}

/// Parses `10s` or `100calls`.
fn window(word: &str) -> Result<Window, SyntaxError> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    match word.split_at(digits) {
        (calls, "calls" | "call") => {
            let calls = number("window of calls", calls)?;
            // A number above `u32` is above the bound too, whose check reports it.
            Ok(Window::Calls(u32::try_from(calls).unwrap_or(u32::MAX)))
        }
        (_, "") => {
            let problem = match word {
                "" => "the window after / is missing".to_owned(),
                _ => format!("window {} has no unit", quoted(word)),
            };
            let advice =
                format!("write a time such as 10s, or calls such as 100calls, up to {WINDOW_CALLS_MAX}");
            Err(SyntaxError::new(problem, advice))
        }
        _ => Ok(Window::Time(span(word)?)),
    }
}

impl fmt::Display for BreakerConfig {
    /// Prints the canonical form: defaults are omitted, durations use the largest unit that divides
    /// them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = self;
        write!(f, "breaker {}%/", config.failure_rate())?;
        match config.window() {
            Window::Time(span) => f.write_str(&unit(span))?,
            Window::Calls(calls) => write!(f, "{calls}calls")?,
        }
        if BreakerConfig::new(1, config.window()).map(|fresh| fresh.min()) != Ok(config.min()) {
            write!(f, " min={}", config.min())?;
        }
        if config.open() != OPEN_DEFAULT {
            write!(f, " open={}", config.open())?;
        }
        if config.probes() != PROBES_DEFAULT {
            write!(f, " probes={}", config.probes())?;
        }
        if config.probe_ttl() != config.open() {
            write!(f, " probe-ttl={}", config.probe_ttl())?;
        }
        if let Some(Slow { longer_than, rate }) = config.slow() {
            write!(f, " slow={longer_than}")?;
            if rate != SLOW_RATE_DEFAULT {
                write!(f, " slow-rate={rate}%")?;
            }
        }
        if config.metrics_only() { f.write_str(" mode=metrics-only") } else { Ok(()) }
    }
}
