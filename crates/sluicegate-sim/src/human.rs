//! Numbers for people.

use sluicegate::core::Span;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Between a number and its unit, so that no line is broken there; turned into a plain space when printed.
pub const TIE: char = '\u{a0}';

/// A length of time, exactly: in two units where that is enough (`1 min 30 s`, `142 ms 858 µs`), else in seconds
/// (`3661 s`, `60.06 s`).
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
        _ => {
            let decimals = format!("{:06}", micros % 1_000_000);
            let seconds = format!("{}.{decimals}", micros / 1_000_000);
            format!("{}{TIE}s", seconds.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

/// A length of time in three figures or so, rounded **up**: `200 ms`, `4.75 s`, `1 min 12 s`, `2 h 41 min`.
pub fn about(length: Span) -> String {
    let micros = length.as_micros();
    let up_to = |grain: u64| micros.div_ceil(grain).saturating_mul(grain);
    let decimals = |unit: u64, name: &str| {
        // 1.24, 12.4, 124
        let grain = if micros < 10 * unit { unit / 100 } else { unit / 10 };
        let hundredths = up_to(if micros < 100 * unit { grain } else { unit }) / (unit / 100);
        let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        format!("{}{TIE}{name}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match micros {
        86_400_000_000.. => span(Span::from_micros(up_to(3_600_000_000))),
        3_600_000_000.. => span(Span::from_micros(up_to(60_000_000))),
        60_000_000.. => span(Span::from_micros(up_to(1_000_000))),
        1_000_000.. => decimals(1_000_000, "s"),
        1_000.. => decimals(1_000, "ms"),
        _ => span(length),
    }
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

/// A part of a whole in per cent, with a decimal where it matters: `82 %`, `0.4 %`, and 100 % or 0 % only if it is all
/// or nothing.
pub fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        _ if part <= 0.0 => format!("0{TIE}%"),
        _ if part >= 1.0 => format!("100{TIE}%"),
        _ if percent < 0.1 => format!("<0.1{TIE}%"),
        _ if percent < 10.0 => format!("{:.1}{TIE}%", (percent * 10.0).floor() / 10.0),
        _ if percent > 99.0 => format!(">99{TIE}%"),
        _ => format!("{percent:.0}{TIE}%"),
    }
}

/// A key as text: what is not text, and what would move the cursor, is escaped; cut after `most` columns.
pub fn key(name: &[u8], most: usize) -> String {
    cut(&printable(&String::from_utf8_lossy(name)), most)
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

/// A text of at most so many columns, the last of which says that there was more.
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
    fn lengths_are_told_exactly_and_shortly() {
        let told = |micros| span(Span::from_micros(micros)).replace(TIE, " ");
        assert_eq!(told(0), "0 s");
        assert_eq!(told(1), "1 µs");
        assert_eq!(told(142_858), "142 ms 858 µs");
        assert_eq!(told(90_000_000), "1 min 30 s");
        assert_eq!(told(60_060_000), "60.06 s");
        assert_eq!(told(90_000_001), "90.000001 s");
        assert_eq!(told(3_661_000_000), "3661 s");
        assert_eq!(told(86_400_000_000), "1 d");
        assert_eq!(told(3_153_600_000_000_000), "36 500 d");
    }

    #[test]
    fn about_rounds_up() {
        let told = |micros| about(Span::from_micros(micros)).replace(TIE, " ");
        assert_eq!(told(7), "7 µs");
        assert_eq!(told(1_234), "1.24 ms");
        assert_eq!(told(199_994), "200 ms");
        assert_eq!(told(4_750_000), "4.75 s");
        assert_eq!(told(59_987_340), "60 s");
        assert_eq!(told(71_000_001), "1 min 12 s");
        assert_eq!(told(59 * 60_000_000 + 59_999_999), "1 h");
        assert_eq!(told(9_600_000_001), "2 h 41 min");
        assert_eq!(told(86_400_000_001), "1 d 1 h");
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(count(5), "5");
        assert_eq!(count(1000), "1000");
        assert_eq!(count(1_000_000_000).replace(TIE, " "), "1 000 000 000");
    }

    #[test]
    fn all_and_nothing_are_said_only_if_it_is_so() {
        let told = |part| percent(part).replace(TIE, " ");
        assert_eq!(told(0.0), "0 %");
        assert_eq!(told(1e-9), "<0.1 %");
        assert_eq!(told(0.0099), "0.9 %");
        assert_eq!(told(0.826), "83 %");
        assert_eq!(told(0.999_999), ">99 %");
        assert_eq!(told(1.0), "100 %");
    }

    #[test]
    fn a_key_is_shown_in_one_line_without_tricks() {
        assert_eq!(key(b"203.0.113.9", 20), "203.0.113.9");
        assert_eq!(key(b"a\x1b[31m\n", 20), "a\\u{1b}[31m\\n");
        assert_eq!(key("令牌".as_bytes(), 20), "令牌");
        assert_eq!(key(b"abcdefghij", 5), "abcd…");
        assert_eq!(key("令牌令牌".as_bytes(), 6), "令牌…", "two columns each");
    }
}
