//! CSV records out of a stream, in memory of a fixed size.

use csv_core::{ReadRecordResult, Reader};
use std::io::{self, Read};

/// The longest record in bytes, quotes not counted: a key of 64 KiB and a few numbers.
pub const RECORD_LEN_MAX: usize = 65 * 1024;
/// The most fields in a record.
pub const FIELDS_MAX: usize = 32;

const CHUNK: usize = 64 * 1024;

/// Reads one record after another.
pub struct Records<R> {
    input: R,
    reader: Reader,
    chunk: Box<[u8]>,
    /// What of the chunk is still to be parsed.
    unread: std::ops::Range<usize>,
    /// How many lines ended before the chunk.
    lines_before: u64,
    fields: Box<[u8]>,
    ends: [usize; FIELDS_MAX],
}

/// One record: its fields and where it begins.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    ends: &'a [usize],
    /// How many lines ended before `before`, and what was read between there and the record: counting the lines
    /// is left to whoever asks, which is nobody but an error message.
    lines: u64,
    before: &'a [u8],
}

/// Why there is no record.
#[derive(Debug)]
pub enum RecordError {
    /// The input could not be read.
    Io(io::Error),
    /// The record that begins on this line is longer than [`RECORD_LEN_MAX`].
    TooLong(u64),
    /// It has more than [`FIELDS_MAX`] fields.
    TooManyFields(u64),
}

impl<'a> Record<'a> {
    /// The line it begins on, counted from 1.
    pub fn line(&self) -> u64 {
        self.lines + lines_in(self.before) + 1
    }

    /// How many fields.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has none, which no record does.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A field, unquoted; empty if there is none at that place.
    pub fn field(&self, place: usize) -> &'a [u8] {
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(place).and_then(|&end| self.bytes.get(start..end)).unwrap_or_default()
    }
}

impl<R: Read> Records<R> {
    /// Reads from `input`, in chunks: it need not be buffered.
    pub fn new(input: R) -> Records<R> {
        Records {
            input,
            reader: Reader::new(),
            chunk: vec![0; CHUNK].into_boxed_slice(),
            unread: 0..0,
            lines_before: 0,
            fields: vec![0; RECORD_LEN_MAX].into_boxed_slice(),
            ends: [0; FIELDS_MAX],
        }
    }

    /// The next record, `None` at the end. Blank lines are passed over.
    ///
    /// # Errors
    /// When the input cannot be read, or a record is too long.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, RecordError> {
        self.skip_line_ends()?;
        let (mut length, mut count) = (0, 0);
        let (mut lines, mut start) = (self.lines_before, self.unread.start);
        let result = loop {
            if self.unread.is_empty() {
                // The record goes on in the next chunk, or begins with it: what was before is about to go.
                lines += lines_in(self.chunk.get(..start).unwrap_or_default());
                start = 0;
                self.fill()?;
            }
            let (result, read, written, ended) = self.reader.read_record(
                self.chunk.get(self.unread.clone()).unwrap_or_default(),
                self.fields.get_mut(length..).unwrap_or_default(),
                self.ends.get_mut(count..).unwrap_or_default(),
            );
            self.unread.start += read;
            length += written;
            count += ended;
            if !matches!(result, ReadRecordResult::InputEmpty) {
                break result;
            }
        };
        let record = Record {
            bytes: self.fields.get(..length).unwrap_or_default(),
            ends: self.ends.get(..count).unwrap_or_default(),
            lines,
            before: self.chunk.get(..start).unwrap_or_default(),
        };
        match result {
            ReadRecordResult::OutputFull => Err(RecordError::TooLong(record.line())),
            ReadRecordResult::OutputEndsFull => Err(RecordError::TooManyFields(record.line())),
            ReadRecordResult::Record => Ok(Some(record)),
            ReadRecordResult::End | ReadRecordResult::InputEmpty => Ok(None),
        }
    }

    /// Passes over blank lines, so that the next record begins where it seems to.
    fn skip_line_ends(&mut self) -> Result<(), RecordError> {
        loop {
            let unread = self.chunk.get(self.unread.clone()).unwrap_or_default();
            let ends = unread.iter().take_while(|&&byte| byte == b'\n' || byte == b'\r').count();
            self.unread.start += ends;
            if !self.unread.is_empty() || !self.fill()? {
                return Ok(());
            }
        }
    }

    /// Whether there was more to read.
    fn fill(&mut self) -> Result<bool, RecordError> {
        self.lines_before += lines_in(self.chunk.get(..self.unread.end).unwrap_or_default());
        self.unread = 0..0;
        loop {
            match self.input.read(&mut self.chunk) {
                Ok(read) => {
                    self.unread = 0..read;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(RecordError::Io(error)),
            }
        }
    }
}

fn lines_in(bytes: &[u8]) -> u64 {
    // Bytes of up to 255 at a time are counted many at once by the processor.
    let count =
        |bytes: &[u8]| bytes.iter().fold(0_u8, |lines, &byte| lines.wrapping_add(u8::from(byte == b'\n')));
    bytes.chunks(255).map(|bytes| u64::from(count(bytes))).sum()
}
