//! Lines out of a stream, numbered, in memory of a fixed size.

use memchr::memchr;
use std::io::{self, Read};
use std::ops::Range;

/// The longest line in bytes, its end not counted. Servers cut a request long before.
pub const LINE_LEN_MAX: usize = 64 * 1024;

/// Room for a line that is not complete yet and a good piece of what follows.
const BUFFER: usize = 4 * LINE_LEN_MAX;
/// How some editors begin a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// What is this long and has no line end is too long for certain, even if the mark and a carriage return are cut off.
const TOO_LONG: usize = LINE_LEN_MAX + BYTE_ORDER_MARK.len() + 2;

/// Reads one line after another.
pub(super) struct Lines<R> {
    input: R,
    buffer: Box<[u8]>,
    /// What of the buffer has not been handed out.
    unread: Range<usize>,
    /// So many bytes of it are known to hold no line end, which matters when the input comes in crumbs.
    searched: usize,
    /// Whether the input has ended.
    ended: bool,
    /// How many lines have been handed out or passed over.
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
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Lines { input, buffer, unread: 0..0, searched: 0, ended: false, line: 0 }
    }

    /// The next line that is not blank, `None` at the end.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let unread = self.buffer.get(self.unread.clone()).unwrap_or_default();
            let found = memchr(b'\n', unread.get(self.searched..).unwrap_or_default());
            let (length, with_end) = match found {
                Some(place) => (self.searched + place, self.searched + place + 1),
                None if unread.len() >= TOO_LONG => {
                    self.line += 1;
                    self.skip_line()?;
                    return Ok(Some(Line { number: self.line, text: None }));
                }
                None if !self.ended => {
                    self.searched = unread.len();
                    self.fill()?;
                    continue;
                }
                None if unread.is_empty() => return Ok(None),
                None => (unread.len(), unread.len()),
            };
            let start = self.unread.start;
            self.unread.start += with_end;
            self.searched = 0;
            self.line += 1;
            let mut text = start..start + length;
            let bytes = self.buffer.get(text.clone()).unwrap_or_default();
            if bytes.ends_with(b"\r") {
                text.end -= 1;
            }
            if self.line == 1 && bytes.starts_with(BYTE_ORDER_MARK) {
                text.start += BYTE_ORDER_MARK.len();
            }
            if !self.is_blank(text.clone()) {
                let text = self.buffer.get(text).filter(|text| text.len() <= LINE_LEN_MAX);
                return Ok(Some(Line { number: self.line, text }));
            }
        }
    }

    /// Whether there is nothing to see. A line that is too long never is, as otherwise it would matter how much of it
    /// came in at once.
    fn is_blank(&self, text: Range<usize>) -> bool {
        let text = self.buffer.get(text).unwrap_or_default();
        text.len() <= LINE_LEN_MAX && text.trim_ascii_start().is_empty()
    }

    /// Passes over the rest of a line without keeping it.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let unread = self.buffer.get(self.unread.clone()).unwrap_or_default();
            let end = memchr(b'\n', unread);
            self.searched = 0;
            match end {
                Some(place) => self.unread.start += place + 1,
                None => self.unread = 0..0,
            }
            if end.is_some() || self.ended {
                return Ok(());
            }
            self.fill()?;
        }
    }

    /// Moves what is unread to the front and reads more behind it, where there is room: what is unread is never much
    /// longer than a line.
    fn fill(&mut self) -> io::Result<()> {
        if self.unread.start > 0 {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        loop {
            match self.input.read(self.buffer.get_mut(self.unread.end..).unwrap_or_default()) {
                Ok(read) => {
                    self.unread.end += read;
                    self.ended = read == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
