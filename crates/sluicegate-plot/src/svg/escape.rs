//! Words of others in XML.

use std::fmt::{self, Write as _};

/// Prints words so that XML reads them back as they are, but for characters that XML 1.0 cannot
/// hold: each becomes U+FFFD.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            // Read as a line feed if it were written as it is.
            '\r' => f.write_str("&#13;"),
            '\t' | '\n' => f.write_char(letter),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => f.write_char(char::REPLACEMENT_CHARACTER),
            _ => f.write_char(letter),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_xml_is_escaped() {
        assert_eq!(Escaped("a<b & \"c\">d's").to_string(), "a&lt;b &amp; &quot;c&quot;&gt;d's");
        assert_eq!(Escaped("]]>").to_string(), "]]&gt;");
    }

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(Escaped("a\0b\u{1b}c\u{ffff}").to_string(), "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(Escaped("\t\n\r").to_string(), "\t\n&#13;");
        assert_eq!(Escaped("令牌桶 µs 😀").to_string(), "令牌桶 µs 😀");
    }
}
