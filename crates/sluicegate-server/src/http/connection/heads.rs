//! Rejects a head of a request with a bare LF, which hyper would accept as the end of a line.
//!
//! A proxy that sees one line where we see two can be made to forward a request that it never saw.
//! hyper has no setting for it, so we look at the bytes before hyper does. It gets one head or one
//! body at a time: where a head ends is seen here, and how long its body is, hyper says before it
//! reads on. In place of a bare LF it gets a byte that no head may contain, and answers 400.

use std::mem;
use tokio::io::ReadBuf;

/// The length of a body whose end only hyper finds. The connection ends after it.
pub(super) const CHUNKED: u64 = u64::MAX;

/// What hyper gets after a bare LF: a byte that it rejects, and the end of the head, without which
/// it may wait for more.
const INVALID: &[u8] = b"\0\r\n\r\n";

/// The bytes of a connection, one head or body at a time.
#[derive(Default)]
pub(super) struct Heads {
    /// What was read beyond the head or body that hyper asked for.
    held: Vec<u8>,
    /// How much of it hyper has.
    taken: usize,
    /// What is left of the body.
    body: u64,
    line: Line,
    /// `true` after the first line of a head: empty lines before it do not end it.
    is_within: bool,
}

/// The current line of a head.
#[derive(Default)]
struct Line {
    len: usize,
    last: u8,
}

/// How much of some bytes hyper gets.
enum Piece {
    /// This many bytes.
    Of(usize),
    /// This many bytes, and then a bare LF follows.
    Invalid(usize),
}

impl Heads {
    /// The head that was read last has a body of this length.
    pub(super) fn body_follows(&mut self, len: u64) {
        self.body = len;
    }

    /// Fills the buffer with bytes that were read before. Returns `false` if there are none.
    pub(super) fn take_held(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let held = mem::take(&mut self.held);
        let rest = &held[self.taken..];
        if rest.is_empty() {
            self.taken = 0;
            return false;
        }
        let fits = &rest[..rest.len().min(buffer.remaining())];
        match self.piece(fits) {
            Piece::Of(len) => {
                buffer.put_slice(&fits[..len]);
                self.taken += len;
                self.held = held;
            }
            Piece::Invalid(len) => {
                buffer.put_slice(&fits[..len]);
                self.reject(buffer, len);
            }
        }
        true
    }

    /// Holds back what was just read into the buffer, from `start` on, beyond a head or body.
    pub(super) fn hold_back(&mut self, buffer: &mut ReadBuf<'_>, start: usize) {
        let (end, is_valid) = match self.piece(&buffer.filled()[start..]) {
            Piece::Of(len) => (start + len, true),
            Piece::Invalid(len) => (start + len, false),
        };
        if is_valid {
            self.held.extend_from_slice(&buffer.filled()[end..]);
            buffer.set_filled(end);
        } else {
            buffer.set_filled(end);
            self.reject(buffer, end - start);
        }
    }

    /// Replaces everything after the `len` bytes that hyper gets now. What comes after that does
    /// not matter, as hyper closes the connection.
    fn reject(&mut self, buffer: &mut ReadBuf<'_>, len: usize) {
        (self.held, self.taken, self.body) = (INVALID.to_vec(), 0, CHUNKED);
        if len == 0 {
            // To read nothing would be the end of the stream.
            self.take_held(buffer);
        }
    }

    /// How much of these bytes belongs to the current head or body.
    fn piece(&mut self, bytes: &[u8]) -> Piece {
        if self.body > 0 {
            let len = bytes.len().min(usize::try_from(self.body).unwrap_or(usize::MAX));
            if self.body != CHUNKED {
                self.body -= len as u64;
            }
            return Piece::Of(len);
        }
        for (index, byte) in bytes.iter().enumerate() {
            let before = mem::replace(&mut self.line.last, *byte);
            self.line.len += 1;
            if *byte != b'\n' {
                continue;
            }
            if before != b'\r' {
                return Piece::Invalid(index);
            }
            let is_empty = mem::take(&mut self.line).len == 2;
            if is_empty && mem::take(&mut self.is_within) {
                return Piece::Of(index + 1);
            }
            self.is_within |= !is_empty;
        }
        Piece::Of(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What hyper gets of these bytes, read by read, if the socket returns at most `most` at once.
    fn reads(input: &str, most: usize, bodies: &[u64]) -> Vec<String> {
        let (mut heads, mut input, mut bodies) = (Heads::default(), input.as_bytes(), bodies.iter());
        let mut reads = Vec::new();
        loop {
            let mut bytes = [0; 64];
            let mut buffer = ReadBuf::new(&mut bytes);
            if !heads.take_held(&mut buffer) {
                let (read, rest) = input.split_at(input.len().min(most));
                if read.is_empty() {
                    return reads;
                }
                input = rest;
                buffer.put_slice(read);
                heads.hold_back(&mut buffer, 0);
            }
            reads.push(String::from_utf8(buffer.filled().to_vec()).unwrap());
            if reads.concat().ends_with("\r\n\r\n")
                && let Some(body) = bodies.next()
            {
                heads.body_follows(*body);
            }
        }
    }

    #[test]
    fn heads_and_bodies_are_read_one_by_one() {
        let input = "\r\nP / H\r\nA: b\r\n\r\n\n\nxG / H\r\n\r\nP / H\r\n\r\n1\r\n\n\r\n";
        let pieces = ["\r\nP / H\r\nA: b\r\n\r\n", "\n\nx", "G / H\r\n\r\n", "P / H\r\n\r\n", "1\r\n\n\r\n"];
        assert_eq!(reads(input, 64, &[3, 0, CHUNKED]), pieces);
        for most in 1..12 {
            assert_eq!(reads(input, most, &[3, 0, CHUNKED]).concat(), input, "by {most}");
        }
    }

    #[test]
    fn a_bare_line_feed_becomes_invalid_wherever_it_is() {
        for (input, valid) in [
            ("\nG / H\r\n\r\n", ""),
            ("G / H\nA: b\r\n\r\n", "G / H"),
            ("G / H\r\nA: b\nC: d\r\n\r\n", "G / H\r\nA: b"),
            ("G / H\r\nA: b\r\n\nG / H\r\n\r\n", "G / H\r\nA: b\r\n"),
            ("G / H\r\n\r\nG / H\n\r\n", "G / H\r\n\r\nG / H"),
        ] {
            for most in [1, 2, 3, 5, 64] {
                let read = reads(input, most, &[]).concat();
                assert!(read.starts_with(&format!("{valid}\0\r\n\r\n")), "{input:?} by {most}: {read:?}");
            }
        }
    }
}
