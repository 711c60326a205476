//! What all protocols encode alike: milliseconds and error texts.

use sluicegate::{Span, Time};

/// The longest error text, in bytes. Errors repeat some of the client's input.
const ERROR_LEN_MAX: usize = 512;

/// A wait in milliseconds. Saturates: that is longer than any wait there is.
pub(crate) fn span_of_millis(ms: u64) -> Span {
    Span::from_micros(ms.saturating_mul(1_000))
}

/// Unix time in milliseconds, rounded up: a caller that comes a moment too early would be denied.
pub(crate) fn unix_millis_up(time: Time) -> u64 {
    time.as_micros().div_ceil(1_000)
}

/// An error text as one line of bounded length, with control characters escaped.
pub(crate) fn error_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(ERROR_LEN_MAX));
    for letter in text.chars() {
        if line.len() >= ERROR_LEN_MAX {
            line.push_str("...");
            break;
        }
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_always_one_short_line() {
        assert_eq!(
            error_line("no rule \"a\r\nb\"\0 \u{9b}\u{fc}"),
            "no rule \"a\\r\\nb\"\\u{0} \\u{9b}\u{fc}"
        );
        let long = error_line(&"\n".repeat(10_000));
        assert!(long.len() < ERROR_LEN_MAX + 20 && long.ends_with("..."), "{long}");
    }

    #[test]
    fn milliseconds_saturate_and_round_up() {
        assert_eq!(span_of_millis(5), Span::from_micros(5_000));
        assert_eq!(span_of_millis(u64::MAX), Span::from_micros(u64::MAX));
        let at = |us| unix_millis_up(Time::from_micros(us).unwrap());
        assert_eq!((at(1_000), at(1_001)), (1, 2));
    }
}
