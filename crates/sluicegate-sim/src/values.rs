//! Values of a text: whole numbers, and how an error repeats what it does not like.

/// The months as logs and people write them.
pub(crate) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Longer values are cut where an error repeats them.
const SHOWN_MAX: usize = 40;

/// A whole number of decimal digits, from 0 to `most`; otherwise what is wrong with it.
pub(crate) fn number(what: &str, digits: &[u8], most: u64) -> Result<u64, String> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(format!("{what} {} is not a whole number", shown(digits)));
    }
    // Cannot wrap: what has more than 19 digits saturates, and 19 digits are below 2^64.
    let digit =
        |number: u64, byte: &u8| number.wrapping_mul(10).wrapping_add(u64::from(byte.wrapping_sub(b'0')));
    let number = if digits.len() > 19 { u64::MAX } else { digits.iter().fold(0, digit) };
    if number > most {
        return Err(format!("{what} {} is above the maximum, {most}", shown(digits)));
    }
    Ok(number)
}

/// A value in quotes, cut and with anything unprintable escaped.
pub(crate) fn shown(value: &[u8]) -> String {
    let (cut, more) = match value.split_at_checked(SHOWN_MAX) {
        Some((cut, [_, ..])) => (cut, "…"),
        _ => (value, ""),
    };
    format!("\"{}{more}\"", cut.escape_ascii())
}
