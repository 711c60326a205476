//! Parses and prints an adaptive limit: `aimd 20 max=200`, `gradient 20 tolerance=150%`.

use super::{
    AdaptiveLimit, Aimd, BACKOFF_DEFAULT, Gradient, MAX_DEFAULT, MIN_DEFAULT, QUEUE_DEFAULT, Range,
    SMOOTHING_DEFAULT, TIMEOUT_DEFAULT, TOLERANCE_DEFAULT, WINDOW_DEFAULT,
};
use crate::text::read;
use sluicegate::LimitError;
use sluicegate::internal::grammar::{Options, SyntaxError, name, number, percent, span};
use std::fmt;
use std::str::FromStr;

impl AdaptiveLimit {
    /// The names of the algorithms.
    pub const ALGORITHMS: [&'static str; 2] = ["aimd", "gradient"];
}

impl FromStr for AdaptiveLimit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<AdaptiveLimit, LimitError> {
        read(text, "a line", "write one limit, such as aimd 20", limit)
    }
}

fn limit(text: &str) -> Result<AdaptiveLimit, SyntaxError> {
    let mut words = text.split_ascii_whitespace();
    let Some(word) = words.next() else {
        return Err(SyntaxError::new("the adaptive limit is empty", "write one, such as aimd 20"));
    };
    let kind = name("adaptive limit", word, &AdaptiveLimit::ALGORITHMS)?;
    let start = words.next().unwrap_or_default();
    if start.is_empty() || start.contains('=') {
        let problem = format!("{kind} needs its initial limit right after it");
        return Err(SyntaxError::new(problem, format!("write {kind} 20")));
    }
    let start = number("start", start)?;
    let takes = match kind {
        "aimd" => "aimd takes min=N max=N backoff=P% timeout=DURATION",
        _ => "gradient takes min=N max=N queue=N smoothing=P% tolerance=P% window=N sample=DURATION",
    };
    let mut options = Options::read(takes, words)?;
    let range = range(start, &mut options)?;
    let config = if kind == "aimd" { aimd(range, &mut options)? } else { gradient(range, &mut options)? };
    options.reject_unknown()?;
    Ok(config)
}

fn range(start: u64, options: &mut Options<'_>) -> Result<Range, SyntaxError> {
    let mut bound = |name| options.take(name).map(|value| number(name, value)).transpose();
    let (min, max) = (bound("min")?, bound("max")?);
    let usual = Range::starting_at(start)?;
    Ok(Range::new(start, min.unwrap_or(usual.min().into()), max.unwrap_or(usual.max().into()))?)
}

fn aimd(range: Range, options: &mut Options<'_>) -> Result<AdaptiveLimit, SyntaxError> {
    let backoff = share("backoff", options)?.unwrap_or(BACKOFF_DEFAULT.into());
    let timeout = options.take("timeout").map(span).transpose()?.unwrap_or(TIMEOUT_DEFAULT);
    Ok(Aimd::new(range, backoff, timeout)?.into())
}

fn gradient(range: Range, options: &mut Options<'_>) -> Result<AdaptiveLimit, SyntaxError> {
    let mut config = Gradient::new(range);
    if let Some(queue) = options.take("queue") {
        config = config.with_queue(number("queue", queue)?)?;
    }
    if let Some(smoothing) = share("smoothing", options)? {
        config = config.with_smoothing(smoothing)?;
    }
    if let Some(tolerance) = share("tolerance", options)? {
        config = config.with_tolerance(tolerance)?;
    }
    if let Some(window) = options.take("window") {
        config = config.with_window(number("window", window)?)?;
    }
    if let Some(sample) = options.take("sample") {
        config = config.with_sample(span(sample)?)?;
    }
    Ok(config.into())
}

fn share(name: &'static str, options: &mut Options<'_>) -> Result<Option<u64>, SyntaxError> {
    options.take(name).map(|word| percent(name, word)).transpose()
}

impl fmt::Display for AdaptiveLimit {
    /// Prints the canonical form, without defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut option = Printer { f };
        match self {
            AdaptiveLimit::Aimd(config) => {
                option.head("aimd", config.range())?;
                option.unless("backoff", config.backoff(), BACKOFF_DEFAULT, "%")?;
                option.unless("timeout", config.timeout(), TIMEOUT_DEFAULT, "")
            }
            AdaptiveLimit::Gradient(config) => {
                option.head("gradient", config.range())?;
                option.unless("queue", config.queue(), QUEUE_DEFAULT, "")?;
                option.unless("smoothing", config.smoothing(), SMOOTHING_DEFAULT, "%")?;
                option.unless("tolerance", config.tolerance(), TOLERANCE_DEFAULT, "%")?;
                option.unless("window", config.window(), WINDOW_DEFAULT, "")?;
                config.sample().map_or(Ok(()), |sample| write!(f, " sample={sample}"))
            }
        }
    }
}

struct Printer<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
}

impl Printer<'_, '_> {
    fn head(&mut self, name: &str, range: Range) -> fmt::Result {
        write!(self.f, "{name} {}", range.start())?;
        self.unless("min", range.min(), range.start().min(MIN_DEFAULT), "")?;
        self.unless("max", range.max(), range.start().max(MAX_DEFAULT), "")
    }

    fn unless<T: Copy + PartialEq + fmt::Display>(
        &mut self,
        name: &str,
        value: T,
        default: T,
        sign: &str,
    ) -> fmt::Result {
        if value == default { Ok(()) } else { write!(self.f, " {name}={value}{sign}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> String {
        text.parse::<AdaptiveLimit>().map_or_else(|error| panic!("{error}"), |limit| limit.to_string())
    }

    fn rejected(text: &str) -> String {
        text.parse::<AdaptiveLimit>().unwrap_err().to_string()
    }

    #[test]
    fn defaults_are_not_printed() {
        for (written, canonical) in [
            ("aimd 20 min=20 max=200 backoff=90% timeout=5s", "aimd 20"),
            ("aimd 5", "aimd 5"),
            ("aimd 5 min=5 max=200", "aimd 5"),
            (
                "aimd 5 min=1 max=300 backoff=50% timeout=1500ms",
                "aimd 5 min=1 max=300 backoff=50% timeout=1500ms",
            ),
            ("aimd 500", "aimd 500"),
            ("gradient 20 min=20 max=200 queue=4 smoothing=20% tolerance=150% window=600", "gradient 20"),
            (
                "gradient 10 sample=1000ms window=60 tolerance=200% smoothing=50% queue=2 max=50 min=2",
                "gradient 10 min=2 max=50 queue=2 smoothing=50% tolerance=200% window=60 sample=1s",
            ),
        ] {
            assert_eq!(printed(written), canonical);
            assert_eq!(printed(canonical), canonical);
        }
    }

    #[test]
    fn an_error_names_the_word_and_what_to_write() {
        for (written, expected) in [
            ("", "the adaptive limit is empty; write one, such as aimd 20"),
            ("amid 20", r#"amid 20: unknown adaptive limit "amid"; did you mean aimd?"#),
            ("vegas 20", r#"vegas 20: unknown adaptive limit "vegas"; use aimd gradient"#),
            ("aimd", "aimd: aimd needs its initial limit right after it; write aimd 20"),
            ("aimd max=5", "aimd max=5: aimd needs its initial limit right after it; write aimd 20"),
            ("aimd 0", "aimd 0: start 0 is below the minimum, 1; that would deny every call, use at least 1"),
            (
                "aimd 20 min=30",
                "aimd 20 min=30: start 20 is below the minimum, 30; lower min=, or start higher",
            ),
            (
                "gradient 20 max=10",
                "gradient 20 max=10: start 20 is above the maximum, 10; raise max=, or start lower",
            ),
            ("aimd 20 backoff=90", r#"aimd 20 backoff=90: backoff "90" has no %; write 90%"#),
            (
                "aimd 20 backoff=100%",
                "aimd 20 backoff=100%: backoff 100 is above the maximum, 99; use 50% to 99%, what is left of the limit after a drop",
            ),
            (
                "aimd 20 queue=4",
                r#"aimd 20 queue=4: unknown option "queue"; aimd takes min=N max=N backoff=P% timeout=DURATION"#,
            ),
            (
                "gradient 20 sample=10ms",
                "gradient 20 sample=10ms: sample 10ms is below the minimum, 100ms; use 100ms to 1h; 1s is usual",
            ),
        ] {
            assert_eq!(rejected(written), expected);
        }
        let long = rejected(&format!("aimd 20 {}", " ".repeat(300)));
        assert!(
            long.ends_with("a line of 308 bytes is above the maximum, 256; write one limit, such as aimd 20")
        );
    }
}
