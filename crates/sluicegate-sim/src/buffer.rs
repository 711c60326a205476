//! A window on a stream, of a fixed size: what is read is looked at in place, and moves to the
//! front when more is needed.

use memchr::memchr;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;

/// The longest line that is skipped, in bytes. Input without shorter lines is not text, and may
/// never end.
const SKIPPED_MAX: usize = 64 * 1024 * 1024;

pub(crate) struct Buffer<R> {
    input: R,
    bytes: Box<[u8]>,
    /// What has not been taken yet.
    unread: Range<usize>,
    ended: bool,
}

impl<R: Read> Buffer<R> {
    /// Reads from `input`, in large pieces: it need not be buffered.
    pub(crate) fn new(input: R, size: usize) -> Buffer<R> {
        Buffer { input, bytes: vec![0; size].into_boxed_slice(), unread: 0..0, ended: false }
    }

    /// What has not been taken yet. After the end of the input it is all there is.
    pub(crate) fn unread(&self) -> &[u8] {
        self.at(self.unread.clone())
    }

    /// Returns `true` if the input has ended.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Takes the first bytes, and tells where they are until more is read.
    pub(crate) fn take(&mut self, length: usize) -> Range<usize> {
        let start = self.unread.start;
        self.unread.start = (start + length).min(self.unread.end);
        start..self.unread.start
    }

    /// Bytes that were taken.
    pub(crate) fn at(&self, place: Range<usize>) -> &[u8] {
        self.bytes.get(place).unwrap_or_default()
    }

    /// Takes all up to the next line end and that too, without keeping it. Whether there was a line
    /// end.
    ///
    /// # Errors
    /// When the input cannot be read, or goes on without a line end as no text does.
    pub(crate) fn skip_line(&mut self) -> io::Result<bool> {
        let mut skipped = 0;
        loop {
            if let Some(place) = memchr(b'\n', self.unread()) {
                self.take(place + 1);
                return Ok(true);
            }
            skipped += self.unread.len();
            if skipped > SKIPPED_MAX {
                let why = format!("there is no line end in {SKIPPED_MAX} bytes");
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
            self.unread = 0..0;
            if self.ended {
                return Ok(false);
            }
            self.fill()?;
        }
    }

    /// Moves what is unread to the front and reads more behind it. There is room, as the reader
    /// takes or skips long before the buffer is full.
    pub(crate) fn fill(&mut self) -> io::Result<()> {
        if self.unread.start > 0 {
            self.bytes.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        loop {
            match self.input.read(self.bytes.get_mut(self.unread.end..).unwrap_or_default()) {
                Ok(read) => {
                    self.unread.end += read;
                    self.ended = read == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_lines_is_not_read_for_ever() {
        let mut buffer = Buffer::new(io::repeat(0), 1 << 16);
        let error = buffer.skip_line().unwrap_err();
        assert_eq!(error.to_string(), "there is no line end in 67108864 bytes");
        let mut buffer = Buffer::new(&b"long\nshort\n"[..], 1 << 16);
        assert!(buffer.skip_line().unwrap());
        assert_eq!(buffer.unread(), b"short\n");
    }
}
