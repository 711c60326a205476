//! Lines that people type: words between blanks, in quotes if need be, as `redis-cli` takes them.

use std::ops::Range;

/// Whether a line begins as a request or a header of HTTP does. A web page can make a browser send such lines to any port
/// of its own machine, and hide commands in the lines that follow.
pub(super) fn begins_like_http(line: &[u8]) -> bool {
    const METHODS: [&[u8]; 10] =
        [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH", b"PRI"];
    let first = line.split(|byte| is_blank(*byte)).next().unwrap_or_default();
    METHODS.iter().any(|method| first.eq_ignore_ascii_case(method))
        || first.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"host:"))
}

/// The words of a line, unquoted in place: what a word says is never longer than how it is written. `None` in it, and
/// then no more, for quotes that do not match.
pub(super) fn split(line: &mut [u8]) -> Words<'_> {
    Words { line, at: 0 }
}

pub(super) struct Words<'a> {
    line: &'a mut [u8],
    at: usize,
}

/// What the next byte of a word is, and where the one after it begins.
enum Next {
    Byte(u8, usize),
    /// The end of the word, or of the quoted part of it.
    End,
    Unbalanced,
}

impl Iterator for Words<'_> {
    type Item = Option<Range<usize>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.line.get(self.at).copied().is_some_and(is_blank) {
            self.at += 1;
        }
        self.line.get(self.at)?;
        let begin = self.at;
        let (mut quote, mut end) = (None, begin);
        loop {
            let byte = self.line.get(self.at).copied();
            let next = match (quote, byte) {
                (None, None) => Next::End,
                (None, Some(blank)) if is_blank(blank) => Next::End,
                (None, Some(mark @ (b'"' | b'\''))) => {
                    quote = Some(mark);
                    self.at += 1;
                    continue;
                }
                (None, Some(byte)) => Next::Byte(byte, self.at + 1),
                (Some(_), None) => Next::Unbalanced,
                (Some(mark), Some(byte)) if byte == mark => {
                    self.at += 1;
                    // A closing quote ends its word.
                    if self.line.get(self.at).copied().is_none_or(is_blank) {
                        Next::End
                    } else {
                        Next::Unbalanced
                    }
                }
                (Some(mark), Some(byte)) => self.quoted(mark, byte),
            };
            match next {
                Next::Byte(byte, after) => {
                    // Never ahead of what is read: `end` has moved on by at most as much as `at`.
                    if let Some(place) = self.line.get_mut(end) {
                        *place = byte;
                    }
                    end += 1;
                    self.at = after;
                }
                Next::End => return Some(Some(begin..end)),
                Next::Unbalanced => {
                    self.at = self.line.len();
                    return Some(None);
                }
            }
        }
    }
}

impl Words<'_> {
    /// A byte between quotes, which may be written as several.
    fn quoted(&self, mark: u8, byte: u8) -> Next {
        let after = |more: usize| self.at + more;
        let escaped = if byte == b'\\' { self.line.get(after(1)).copied() } else { None };
        match (mark, escaped) {
            (b'\'', Some(b'\'')) => Next::Byte(b'\'', after(2)),
            (b'\'', _) | (_, None) => Next::Byte(byte, after(1)),
            (_, Some(b'x')) => {
                let digit = |place| Some(char::from(*self.line.get(place)?).to_digit(16)?.to_le_bytes()[0]);
                match (digit(after(2)), digit(after(3))) {
                    (Some(high), Some(low)) => Next::Byte(high * 16 + low, after(4)),
                    _ => Next::Byte(b'x', after(2)),
                }
            }
            (_, Some(b'n')) => Next::Byte(b'\n', after(2)),
            (_, Some(b'r')) => Next::Byte(b'\r', after(2)),
            (_, Some(b't')) => Next::Byte(b'\t', after(2)),
            (_, Some(b'b')) => Next::Byte(0x08, after(2)),
            (_, Some(b'a')) => Next::Byte(0x07, after(2)),
            (_, Some(other)) => Next::Byte(other, after(2)),
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c | 0)
}
