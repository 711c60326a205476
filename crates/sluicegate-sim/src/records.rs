//! CSV records out of a stream, read strictly and in memory of a fixed size.
//!
//! The usual CSV: fields between commas, a field in double quotes may hold commas, line ends and
//! doubled quotes. Libraries let pass what is not quite that, and then one forgotten quote silently
//! swallows the rows up to the next; here it is said. Rows without a quote, which most are, are not
//! even copied.

use crate::buffer::Buffer;
use memchr::{memchr, memchr_iter, memchr2};
use std::io::{self, Read};
use std::ops::Range;

/// The longest record in bytes: a key of 64 KiB and a few numbers.
pub(crate) const RECORD_LEN_MAX: usize = 65 * 1024;
/// The fields of a record that can be asked for; further ones are only counted.
const FIELDS_KEPT: usize = 4;
/// Room for a record that is not complete yet and a good piece of what follows.
const BUFFER: usize = 4 * RECORD_LEN_MAX;

/// Reads one record after another.
pub(crate) struct Records<R> {
    buffer: Buffer<R>,
    /// The line that the unread bytes begin on, counted from 1.
    line: u64,
    /// Where the fields of a record with quotes are put together.
    unquoted: Vec<u8>,
}

/// One record.
#[derive(Clone, Debug)]
pub(crate) struct Record<'a> {
    bytes: &'a [u8],
    fields: Fields,
    line: u64,
}

/// Where the fields are.
#[derive(Clone, Default, Debug)]
struct Fields {
    kept: [Range<usize>; FIELDS_KEPT],
    count: usize,
}

/// Why there is no record.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// The input could not be read.
    Io(io::Error),
    /// The record that begins on this line is not CSV as it should be.
    Bad(u64, Fault),
}

/// What is wrong with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is longer than [`RECORD_LEN_MAX`].
    TooLong,
    /// A quote that begins a field has no partner.
    QuoteNotClosed,
    /// There is something between the closing quote and the next comma.
    TextAfterQuote,
}

impl Fields {
    fn push(&mut self, field: Range<usize>) {
        if let Some(kept) = self.kept.get_mut(self.count) {
            *kept = field;
        }
        self.count += 1;
    }
}

impl<'a> Record<'a> {
    /// The line it begins on, counted from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// How many fields it has, which is at least one.
    pub(crate) fn count(&self) -> usize {
        self.fields.count
    }

    /// The whole record as it was written; of one with quotes, its fields one after another.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// One of the first few fields, unquoted; empty if there is none at that place.
    pub(crate) fn field(&self, place: usize) -> &'a [u8] {
        let field = self.fields.kept.get(place).cloned().unwrap_or_default();
        self.bytes.get(field).unwrap_or_default()
    }
}

impl<R: Read> Records<R> {
    /// Reads from `input`, in large pieces: it need not be buffered.
    pub(crate) fn new(input: R) -> Records<R> {
        Records { buffer: Buffer::new(input, BUFFER), line: 1, unquoted: Vec::new() }
    }

    /// The next record, `None` at the end. Blank lines are skipped.
    ///
    /// # Errors
    /// When the input cannot be read, or a record is not CSV as it should be.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'_>>, RecordError> {
        loop {
            let unread = self.buffer.unread();
            let end = match memchr2(b'\n', b'"', unread) {
                Some(place) if unread.get(place) == Some(&b'"') => return self.quoted(),
                Some(place) if place > RECORD_LEN_MAX => {
                    return Err(RecordError::Bad(self.line, Fault::TooLong));
                }
                Some(place) => place,
                None if unread.len() > RECORD_LEN_MAX => {
                    return Err(RecordError::Bad(self.line, Fault::TooLong));
                }
                None if !self.buffer.ended() => {
                    self.buffer.fill().map_err(RecordError::Io)?;
                    continue;
                }
                None if unread.is_empty() => return Ok(None),
                None => unread.len(),
            };
            let start = self.buffer.take(end + 1).start;
            self.line += 1;
            let bytes = self.buffer.at(start..start + end);
            let length = bytes.strip_suffix(b"\r").unwrap_or(bytes).len();
            if length > 0 {
                // Borrowed again, as the loop may repeat.
                let bytes = self.buffer.at(start..start + length);
                return Ok(Some(Record { bytes, fields: plain_fields(bytes), line: self.line - 1 }));
            }
        }
    }

    /// Passes over what is left of the line that is at fault.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(crate) fn skip_line(&mut self) -> Result<(), RecordError> {
        self.line += u64::from(self.buffer.skip_line().map_err(RecordError::Io)?);
        Ok(())
    }

    /// A record with a quote somewhere. Its fields are put together in a buffer of their own.
    fn quoted(&mut self) -> Result<Option<Record<'_>>, RecordError> {
        loop {
            let unread = self.buffer.unread();
            self.unquoted.clear();
            match quoted_fields(unread, self.buffer.ended(), &mut self.unquoted) {
                Ok(Some((fields, length))) if length <= RECORD_LEN_MAX => {
                    let line = self.line;
                    let read = unread.get(..length).unwrap_or_default();
                    self.line += memchr_iter(b'\n', read).count() as u64;
                    self.buffer.take(length);
                    return Ok(Some(Record { bytes: &self.unquoted, fields, line }));
                }
                Ok(None) if unread.len() <= RECORD_LEN_MAX && !self.buffer.ended() => {
                    self.buffer.fill().map_err(RecordError::Io)?;
                }
                Ok(_) => return Err(RecordError::Bad(self.line, Fault::TooLong)),
                Err(fault) => return Err(RecordError::Bad(self.line, fault)),
            }
        }
    }
}

fn plain_fields(bytes: &[u8]) -> Fields {
    let mut fields = Fields::default();
    let mut start = 0;
    for comma in memchr_iter(b',', bytes) {
        fields.push(start..comma);
        start = comma + 1;
    }
    fields.push(start..bytes.len());
    fields
}

/// The fields of the record that `bytes` begin with, put together in `unquoted`, and how long the
/// record is with its line end. `None` if it goes on beyond `bytes`, which it cannot if they are
/// all there is.
fn quoted_fields(
    bytes: &[u8],
    is_all: bool,
    unquoted: &mut Vec<u8>,
) -> Result<Option<(Fields, usize)>, Fault> {
    let mut fields = Fields::default();
    let mut place = 0;
    loop {
        let start = unquoted.len();
        let rest = bytes.get(place..).unwrap_or_default();
        if rest.first() == Some(&b'"') {
            place += 1;
            loop {
                let rest = bytes.get(place..).unwrap_or_default();
                let Some(length) = memchr(b'"', rest) else {
                    return if is_all { Err(Fault::QuoteNotClosed) } else { Ok(None) };
                };
                unquoted.extend_from_slice(rest.get(..length).unwrap_or_default());
                place += length + 1;
                if bytes.get(place) != Some(&b'"') {
                    break;
                }
                unquoted.push(b'"');
                place += 1;
            }
        } else {
            let length = memchr2(b',', b'\n', rest).unwrap_or(rest.len());
            let field = rest.get(..length).unwrap_or_default();
            let is_last = rest.get(length) != Some(&b',');
            unquoted.extend_from_slice(if is_last {
                field.strip_suffix(b"\r").unwrap_or(field)
            } else {
                field
            });
            place += length;
        }
        fields.push(start..unquoted.len());
        match bytes.get(place..).unwrap_or_default() {
            [b',', ..] => place += 1,
            [b'\n', ..] => return Ok(Some((fields, place + 1))),
            [b'\r', b'\n', ..] => return Ok(Some((fields, place + 2))),
            [] | [b'\r'] => return Ok(is_all.then_some((fields, bytes.len()))),
            _ => return Err(Fault::TextAfterQuote),
        }
    }
}
