//! Inline commands: lines that people type, split at spaces, with quotes as in `redis-cli`.

use std::ops::Range;

/// Returns `true` if a line starts like an HTTP request or header. A web page can make a browser
/// send such lines to any port of its machine, and hide commands in the lines that follow.
pub(super) fn looks_like_http(line: &[u8]) -> bool {
    const METHODS: [&[u8]; 10] =
        [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH", b"PRI"];
    let first = line.split(|byte| is_space(*byte)).next().unwrap_or_default();
    METHODS.iter().any(|method| first.eq_ignore_ascii_case(method))
        || first.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"host:"))
}

/// Splits a line into arguments, unquoted in place: an argument is never longer than its quoted
/// form. Unbalanced quotes yield `None`, and the iteration ends.
pub(super) fn split(line: &mut [u8]) -> Arguments<'_> {
    Arguments { line, at: 0 }
}

pub(super) struct Arguments<'a> {
    line: &'a mut [u8],
    at: usize,
}

/// The next byte of an argument, and where to continue.
enum Parsed {
    Byte(u8, usize),
    /// The end of the argument.
    End,
    Unbalanced,
}

impl Iterator for Arguments<'_> {
    type Item = Option<Range<usize>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.line.get(self.at).copied().is_some_and(is_space) {
            self.at += 1;
        }
        self.line.get(self.at)?;
        let begin = self.at;
        let (mut quote, mut end) = (None, begin);
        loop {
            let byte = self.line.get(self.at).copied();
            let next = match (quote, byte) {
                (None, None) => Parsed::End,
                (None, Some(space)) if is_space(space) => Parsed::End,
                (None, Some(mark @ (b'"' | b'\''))) => {
                    quote = Some(mark);
                    self.at += 1;
                    continue;
                }
                (None, Some(byte)) => Parsed::Byte(byte, self.at + 1),
                (Some(_), None) => Parsed::Unbalanced,
                (Some(mark), Some(byte)) if byte == mark => {
                    self.at += 1;
                    // A closing quote ends the argument.
                    if self.line.get(self.at).copied().is_none_or(is_space) {
                        Parsed::End
                    } else {
                        Parsed::Unbalanced
                    }
                }
                (Some(mark), Some(byte)) => self.quoted(mark, byte),
            };
            match next {
                Parsed::Byte(byte, after) => {
                    // Never overwrites unread bytes: `end` advances at most as far as `at`.
                    if let Some(target) = self.line.get_mut(end) {
                        *target = byte;
                    }
                    end += 1;
                    self.at = after;
                }
                Parsed::End => return Some(Some(begin..end)),
                Parsed::Unbalanced => {
                    self.at = self.line.len();
                    return Some(None);
                }
            }
        }
    }
}

impl Arguments<'_> {
    /// Parses a byte within quotes, which may be an escape sequence.
    fn quoted(&self, mark: u8, byte: u8) -> Parsed {
        let after = |more: usize| self.at + more;
        let escaped = if byte == b'\\' { self.line.get(after(1)).copied() } else { None };
        match (mark, escaped) {
            (b'\'', Some(b'\'')) => Parsed::Byte(b'\'', after(2)),
            (b'\'', _) | (_, None) => Parsed::Byte(byte, after(1)),
            (_, Some(b'x')) => {
                let digit = |at| Some(char::from(*self.line.get(at)?).to_digit(16)?.to_le_bytes()[0]);
                match (digit(after(2)), digit(after(3))) {
                    (Some(high), Some(low)) => Parsed::Byte(high * 16 + low, after(4)),
                    _ => Parsed::Byte(b'x', after(2)),
                }
            }
            (_, Some(b'n')) => Parsed::Byte(b'\n', after(2)),
            (_, Some(b'r')) => Parsed::Byte(b'\r', after(2)),
            (_, Some(b't')) => Parsed::Byte(b'\t', after(2)),
            (_, Some(b'b')) => Parsed::Byte(0x08, after(2)),
            (_, Some(b'a')) => Parsed::Byte(0x07, after(2)),
            (_, Some(other)) => Parsed::Byte(other, after(2)),
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c | 0)
}
