//! Numbers for people.

use sluicegate_core::Span;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Between a number and its unit, so that no line is broken there; turned into a plain space when
/// printed.
pub const TIE: char = '\u{a0}';

/// A length of time, exactly: in two units where that is enough (`1 min 30 s`, `142 ms 858 µs`),
/// else in seconds (`3661 s`, `60.06 s`).
pub fn span(span: Span) -> String {
    const UNITS: [(u64, &str); 6] = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
        (1_000, "ms"),
        (1, "µs"),
    ];
    let micros = span.as_micros();
    let Some(largest) = UNITS.iter().position(|&(size, _)| micros >= size) else { return format!("0{TIE}s") };
    let (size, name) = UNITS[largest];
    let (whole, rest) = (count(micros / size), micros % size);
    match UNITS.get(largest + 1) {
        _ if rest == 0 => format!("{whole}{TIE}{name}"),
        Some(&(next, next_name)) if rest % next == 0 => {
            format!("{whole}{TIE}{name}{TIE}{}{TIE}{next_name}", rest / next)
        }
        _ => format!("{}{TIE}s", decimal(micros, 1_000_000)),
    }
}

/// A length of time in three figures or so, rounded **up**: `200 ms`, `4.75 s`, `1 min 12 s`, `2 h
/// 41 min`.
pub fn about(length: Span) -> String {
    let micros = length.as_micros();
    let grain = match micros {
        86_400_000_000.. => 3_600_000_000,
        3_600_000_000.. => 60_000_000,
        60_000_000.. => 1_000_000,
        10_000_000.. => 100_000,
        1_000_000.. => 10_000,
        100_000.. => 1_000,
        10_000.. => 100,
        1_000.. => 10,
        _ => 1,
    };
    let micros = micros.div_ceil(grain).saturating_mul(grain);
    match micros {
        60_000_000.. | 0..1_000 => span(Span::from_micros(micros)),
        1_000_000.. => format!("{}{TIE}s", decimal(micros, 1_000_000)),
        _ => format!("{}{TIE}ms", decimal(micros, 1_000)),
    }
}

/// A moment, as a length from the beginning, rounded **down** to the second; below a minute to the
/// millisecond, and below that not at all: `1 d 1 h 4 min 9 s`, `4.071 s`, `20 µs`.
pub fn moment(length: Span) -> String {
    let seconds = length.as_micros() / 1_000_000;
    if length.as_micros() < 1_000 {
        return span(length);
    }
    if seconds < 60 {
        return format!("{}{TIE}s", decimal(length.as_micros() / 1_000, 1_000));
    }
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let some = parts.into_iter().filter(|(number, _)| *number > 0);
    some.map(|(number, unit)| format!("{number}{TIE}{unit}")).collect::<Vec<_>>().join(&TIE.to_string())
}

/// `number / unit` with as many decimals as there are; `unit` is a power of ten.
fn decimal(number: u64, unit: u64) -> String {
    let digits = unit.to_string().len() - 1;
    let text = format!("{}.{:0digits$}", number / unit, number % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A count with its noun: `1 call`, `12 000 calls`.
pub fn many(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A number with its thousands apart: `1 000 000`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) && digits.len() > 4 {
            grouped.push(TIE);
        }
        grouped.push(digit);
    }
    grouped
}

/// An amount in at most six letters, rounded down: `12`, `9500`, `120 k`, `3.4 M`.
pub fn short(amount: u64) -> String {
    let units = [
        (1_000_000_000_000_000_000, "E"),
        (1_000_000_000_000_000, "P"),
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    match units.into_iter().find(|(unit, _)| amount >= *unit) {
        // A decimal below a hundred.
        Some((unit, name)) if amount >= 10_000 && amount / unit < 100 => {
            format!("{}{TIE}{name}", decimal(amount / (unit / 10), 10))
        }
        Some((unit, name)) if amount >= 10_000 => format!("{}{TIE}{name}", amount / unit),
        _ => amount.to_string(),
    }
}

/// `some` of `all` in per cent, with a decimal where it matters: `82 %`, `0.4 %`, and 100 % or 0 %
/// only if it is all or nothing. (All of nothing is 100 %.)
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub fn percent(some: u64, all: u64) -> String {
    let part = if all == 0 { 1.0 } else { some as f64 / all as f64 };
    let percent = part * 100.0;
    match percent {
        _ if part <= 0.0 => format!("0{TIE}%"),
        _ if part >= 1.0 => format!("100{TIE}%"),
        _ if percent < 0.1 => format!("<0.1{TIE}%"),
        _ if percent < 9.95 => format!("{percent:.1}{TIE}%"),
        _ if percent > 99.0 => format!(">99{TIE}%"),
        _ => format!("{percent:.0}{TIE}%"),
    }
}

/// A key as text: what is not text, and what would move the cursor, is escaped; cut after `most`
/// columns.
pub fn key(name: &[u8], most: usize) -> String {
    // An empty one would not be seen.
    if name.is_empty() { "\"\"".to_owned() } else { cut(&printable(&String::from_utf8_lossy(name)), most) }
}

/// A text in one line without what would move the cursor or turn the direction.
pub fn printable(text: &str) -> String {
    let escape = |letter: char| match letter {
        '"' | '\'' | '\\' => letter.to_string(),
        _ => letter.escape_debug().to_string(),
    };
    text.chars().map(escape).collect()
}

/// How many columns of a terminal a text takes.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// Truncates a text to a number of columns; the last one marks the cut.
pub fn cut(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        if columns(&kept) + letter.width().unwrap_or(0) + 1 > most {
            break;
        }
        kept.push(letter);
    }
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_reported_exactly_and_shortly() {
        let shown = |micros| span(Span::from_micros(micros)).replace(TIE, " ");
        assert_eq!(shown(0), "0 s");
        assert_eq!(shown(1), "1 µs");
        assert_eq!(shown(142_858), "142 ms 858 µs");
        assert_eq!(shown(90_000_000), "1 min 30 s");
        assert_eq!(shown(60_060_000), "60.06 s");
        assert_eq!(shown(90_000_001), "90.000001 s");
        assert_eq!(shown(3_661_000_000), "3661 s");
        assert_eq!(shown(86_400_000_000), "1 d");
        assert_eq!(shown(3_153_600_000_000_000), "36 500 d");
    }

    #[test]
    fn about_rounds_up() {
        let shown = |micros| about(Span::from_micros(micros)).replace(TIE, " ");
        assert_eq!(shown(7), "7 µs");
        assert_eq!(shown(1_234), "1.24 ms");
        assert_eq!(shown(199_994), "200 ms");
        assert_eq!(shown(4_750_000), "4.75 s");
        assert_eq!(shown(59_987_340), "1 min");
        assert_eq!(shown(71_000_001), "1 min 12 s");
        assert_eq!(shown(59 * 60_000_000 + 59_999_999), "1 h");
        assert_eq!(shown(9_600_000_001), "2 h 41 min");
        assert_eq!(shown(86_400_000_001), "1 d 1 h");
        assert_eq!(shown(999_001), "1 s");
        assert_eq!(shown(999), "999 µs");
    }

    #[test]
    fn moments_round_down() {
        let shown = |micros| moment(Span::from_micros(micros)).replace(TIE, " ");
        assert_eq!(shown(0), "0 s");
        assert_eq!(shown(20), "20 µs");
        assert_eq!(shown(4_071_999), "4.071 s");
        assert_eq!(shown(61_999_999), "1 min 1 s");
        assert_eq!(shown(90_249_000_000), "1 d 1 h 4 min 9 s");
    }

    #[test]
    fn short_amounts_fit_beside_an_axis() {
        let shown = |amount| short(amount).replace(TIE, " ");
        assert_eq!(shown(9_999), "9999");
        assert_eq!(shown(12_345), "12.3 k");
        assert_eq!(shown(120_999), "120 k");
        assert_eq!(shown(1_000_000), "1 M");
        assert_eq!(shown(3_499_999), "3.4 M");
        assert_eq!(shown(4_000_000_000_000_000_000), "4 E");
        assert!(short(u64::MAX).chars().count() <= 6);
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(count(5), "5");
        assert_eq!(count(1000), "1000");
        assert_eq!(count(1_000_000_000).replace(TIE, " "), "1 000 000 000");
    }

    #[test]
    fn all_and_nothing_are_said_only_if_it_is_so() {
        let shown = |some, all| percent(some, all).replace(TIE, " ");
        assert_eq!(shown(0, 7), "0 %");
        assert_eq!(shown(1, 1_000_000), "<0.1 %");
        assert_eq!(shown(99, 10_000), "1.0 %");
        assert_eq!(shown(996, 10_000), "10 %");
        assert_eq!(shown(826, 1000), "83 %");
        assert_eq!(shown(999_999, 1_000_000), ">99 %");
        assert_eq!(shown(7, 7), "100 %");
        assert_eq!(shown(0, 0), "100 %");
    }

    #[test]
    fn a_key_is_shown_in_one_line_without_tricks() {
        assert_eq!(key(b"203.0.113.9", 20), "203.0.113.9");
        assert_eq!(key(b"", 20), "\"\"");
        assert_eq!(key(b"a\x1b[31m\n", 20), "a\\u{1b}[31m\\n");
        assert_eq!(key("令牌".as_bytes(), 20), "令牌");
        assert_eq!(key(b"abcdefghij", 5), "abcd…");
        assert_eq!(key("令牌令牌".as_bytes(), 6), "令牌…", "two columns each");
    }
}
