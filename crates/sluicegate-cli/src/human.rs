//! Numbers for people.

use sluicegate::core::Span;

/// Between a number and its unit, so that no line is broken there; turned into a plain space when printed.
pub(crate) const TIE: char = '\u{a0}';

/// A length of time, exactly: in two units where that is enough (`1 min 30 s`, `142 ms 858 µs`), else in seconds
/// (`3661 s`, `60.06 s`).
pub(crate) fn span(span: Span) -> String {
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

/// A number with its thousands apart: `1 000 000`.
pub(crate) fn count(number: u64) -> String {
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
    fn large_numbers_are_grouped() {
        assert_eq!(count(5), "5");
        assert_eq!(count(1000), "1000");
        assert_eq!(count(1_000_000_000).replace(TIE, " "), "1 000 000 000");
    }
}
