//! Lines out of a stream, numbered, in memory of a fixed size.

use crate::buffer::Buffer;
use memchr::memchr;
use std::io::{self, Read};

/// The longest line in bytes, its end not counted. Servers cut a request long before.
pub const LINE_LEN_MAX: usize = 64 * 1024;

/// Room for a line that is not complete yet and a good piece of what follows.
const BUFFER: usize = 4 * LINE_LEN_MAX;
/// How some editors begin a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// What is this long and has no line end is too long for certain, even if the mark and a carriage
/// return are cut off.
const TOO_LONG: usize = LINE_LEN_MAX + BYTE_ORDER_MARK.len() + 2;

/// Reads one line after another.
pub(super) struct Lines<R> {
    buffer: Buffer<R>,
    /// This many unread bytes are known to hold no line end, which matters when the input comes in
    /// crumbs.
    searched: usize,
    /// The number of lines returned or skipped.
    line: u64,
}

/// A line that is not blank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// Counted from 1.
    pub(super) number: u64,
    /// Without its end. `None` if it is longer than [`LINE_LEN_MAX`].
    pub(super) text: Option<&'a [u8]>,
}

impl<R: Read> Lines<R> {
    /// Reads from `input`, in large pieces: it need not be buffered.
    pub(super) fn new(input: R) -> Lines<R> {
        Lines { buffer: Buffer::new(input, BUFFER), searched: 0, line: 0 }
    }

    /// The next line that is not blank, `None` at the end.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let unread = self.buffer.unread();
            let found = memchr(b'\n', unread.get(self.searched..).unwrap_or_default());
            let (length, with_end) = match found {
                Some(place) => (self.searched + place, self.searched + place + 1),
                None if unread.len() >= TOO_LONG => {
                    self.line += 1;
                    self.searched = 0;
                    self.buffer.skip_line()?;
                    return Ok(Some(Line { number: self.line, text: None }));
                }
                None if !self.buffer.ended() => {
                    self.searched = unread.len();
                    self.buffer.fill()?;
                    continue;
                }
                None if unread.is_empty() => return Ok(None),
                None => (unread.len(), unread.len()),
            };
            let start = self.buffer.take(with_end).start;
            self.searched = 0;
            self.line += 1;
            let mut text = start..start + length;
            let bytes = self.buffer.at(text.clone());
            if bytes.ends_with(b"\r") {
                text.end -= 1;
            }
            if self.line == 1 && bytes.starts_with(BYTE_ORDER_MARK) {
                text.start += BYTE_ORDER_MARK.len();
            }
            if !is_blank(self.buffer.at(text.clone())) {
                let text = Some(self.buffer.at(text)).filter(|text| text.len() <= LINE_LEN_MAX);
                return Ok(Some(Line { number: self.line, text }));
            }
        }
    }
}

/// Returns `true` if a line is blank. A line that is too long never is: otherwise the result would
/// depend on how much of it was read at once.
fn is_blank(text: &[u8]) -> bool {
    text.len() <= LINE_LEN_MAX && text.trim_ascii_start().is_empty()
}
