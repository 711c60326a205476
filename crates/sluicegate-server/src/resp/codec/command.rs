//! Parses commands without copying them.
//!
//! A command is an array of bulk strings, `*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n`, or an inline command,
//! `ECHO hi\r\n`. Arrays do not nest and hold no other types, so the parser needs no stack. It
//! allocates nothing for bytes that have not arrived, whatever lengths a client announces. It is
//! resumable: bytes that arrive one by one are looked at once.

use super::inline;
use memchr::memchr;
use std::fmt;
use std::ops::Range;

/// Bounds on what a client may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandBounds {
    /// The most arguments of a command, including its name.
    pub arguments: usize,
    /// The longest argument, in bytes.
    pub bulk_len: usize,
    /// The longest command, in bytes; also the longest inline command.
    pub command_len: usize,
}

/// Parses the commands in a buffer that bytes are appended to. Finds several at once, for a batch.
#[derive(Default, Debug)]
pub struct Parser {
    /// The arguments of all complete commands, as ranges of the buffer, then those of the
    /// incomplete one.
    arguments: Vec<Range<usize>>,
    /// The end of each complete command in `arguments`.
    commands: Vec<usize>,
    /// The start of the incomplete command in the buffer.
    begin: usize,
    state: ParserState,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum ParserState {
    #[default]
    Begin,
    /// In an array: `left` bulk strings are missing, and the next one starts at `at`.
    Bulks { left: usize, at: usize },
    /// In an inline command: there is no line end before `searched`.
    Line { searched: usize },
}

/// A command, borrowed from the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    bytes: &'a [u8],
    arguments: &'a [Range<usize>],
}

/// Complete commands and the buffer that holds their bytes.
#[derive(Clone, Copy, Debug)]
pub struct Commands<'a> {
    bytes: &'a [u8],
    arguments: &'a [Range<usize>],
    /// The end of each command in `arguments`.
    ends: &'a [usize],
}

/// Commands that were copied from the buffer they arrived in.
#[derive(Default, Debug)]
pub struct CommandQueue {
    bytes: Vec<u8>,
    arguments: Vec<Range<usize>>,
    ends: Vec<usize>,
}

/// Why bytes are not a command. The connection must be closed: where the next command starts is
/// unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// The length of an array is invalid.
    ArrayLength,
    /// A command has too many arguments.
    TooManyArguments(usize),
    /// An array holds something other than bulk strings.
    ExpectedBulk(u8),
    /// The length of a bulk string is invalid or too large.
    BulkLength(usize),
    /// A bulk string does not end with CRLF where its length says.
    BulkEnd,
    /// A command is too long.
    CommandTooLong(usize),
    /// An inline command is too long.
    LineTooLong(usize),
    /// The quotes of an inline command are unbalanced.
    Quotes,
    /// Neither an array nor text, such as a TLS handshake.
    NotText,
    /// An HTTP request: a web page, or a client on the wrong port.
    Http,
}

impl fmt::Display for ProtocolError {
    /// Starts with Redis's own wording where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::ArrayLength => {
                f.write_str("invalid multibulk length; write the number of arguments, as in *1")
            }
            ProtocolError::TooManyArguments(most) => {
                write!(f, "invalid multibulk length; a command has at most {most} arguments")
            }
            ProtocolError::ExpectedBulk(byte) => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            ProtocolError::BulkLength(most) => {
                write!(f, "invalid bulk length; an argument has at most {most} bytes")
            }
            ProtocolError::BulkEnd => {
                f.write_str("invalid bulk end; expected CRLF after the announced length")
            }
            ProtocolError::CommandTooLong(most) => {
                write!(f, "too big command; a command has at most {most} bytes")
            }
            ProtocolError::LineTooLong(most) => {
                write!(f, "too big inline request; a line has at most {most} bytes")
            }
            ProtocolError::Quotes => f.write_str(
                "unbalanced quotes in request; close each quote, and put a space or nothing after it",
            ),
            ProtocolError::NotText => f.write_str(
                "expected '*' or a line of text; if this is TLS, note that the server runs without it",
            ),
            ProtocolError::Http => f.write_str("this port speaks RESP, not HTTP"),
        }
    }
}

impl std::error::Error for ProtocolError {}

impl<'a> Command<'a> {
    /// The number of arguments, including the name.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Always `false`: a command has a name.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// The argument at an index; 0 is the name.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.bytes.get(self.arguments.get(index)?.clone())
    }

    /// The length of the command on the wire, as an array: at least six bytes per argument.
    pub fn wire_len(&self) -> usize {
        const FRAME_LEN_MIN: usize = "$0\r\n\r\n".len();
        self.arguments.iter().map(|argument| argument.len() + FRAME_LEN_MIN).sum()
    }

    /// The arguments from an index on.
    pub fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        let rest = self.arguments.get(index..).unwrap_or_default();
        rest.iter().filter_map(move |argument| bytes.get(argument.clone()))
    }
}

impl<'a> Commands<'a> {
    /// The number of commands.
    pub fn len(self) -> usize {
        self.ends.len()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(self) -> bool {
        self.ends.is_empty()
    }

    /// The commands before an index, or all.
    #[must_use]
    pub fn before(self, index: usize) -> Commands<'a> {
        Commands { ends: self.ends.get(..index).unwrap_or(self.ends), ..self }
    }

    /// The command at an index.
    pub fn get(self, index: usize) -> Option<Command<'a>> {
        let end = *self.ends.get(index)?;
        let begin = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        Some(Command { bytes: self.bytes, arguments: self.arguments.get(begin..end)? })
    }
}

impl CommandQueue {
    /// Appends a copy of a command.
    pub fn push(&mut self, command: Command<'_>) {
        for argument in command.from(0) {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(argument);
            self.arguments.push(begin..self.bytes.len());
        }
        self.ends.push(self.arguments.len());
    }

    /// The commands, in the order in which they were appended.
    pub fn commands(&self) -> Commands<'_> {
        Commands { bytes: &self.bytes, arguments: &self.arguments, ends: &self.ends }
    }
}

impl Parser {
    /// Parses until there are `most` commands or the bytes end. Inline commands are unquoted in
    /// place.
    ///
    /// # Errors
    /// As soon as the bytes cannot become a command. The commands before them remain available.
    pub fn parse(
        &mut self,
        bytes: &mut [u8],
        most: usize,
        bounds: &CommandBounds,
    ) -> Result<(), ProtocolError> {
        while self.commands.len() < most {
            let end = match self.state {
                ParserState::Begin => match bytes.get(self.begin) {
                    None => return Ok(()),
                    Some(b'*') => match length(bytes, self.begin + 1) {
                        Length::Incomplete => return Ok(()),
                        Length::Wrong => return Err(ProtocolError::ArrayLength),
                        // An empty array is not a command, and gets no reply.
                        Length::Null(next) | Length::Is(0, next) => {
                            self.begin = next;
                            continue;
                        }
                        Length::Is(left, _) if left > bounds.arguments => {
                            return Err(ProtocolError::TooManyArguments(bounds.arguments));
                        }
                        Length::Is(left, at) => self.bulks(bytes, left, at, bounds)?,
                    },
                    // Control characters, which start a TLS handshake and no command.
                    Some(0..=8 | 14..=31 | 127..) => return Err(ProtocolError::NotText),
                    Some(_) => self.line(bytes, self.begin, bounds)?,
                },
                ParserState::Bulks { left, at } => self.bulks(bytes, left, at, bounds)?,
                ParserState::Line { searched } => self.line(bytes, searched, bounds)?,
            };
            let Some(end) = end else { return Ok(()) };
            self.state = ParserState::Begin;
            self.begin = end;
            // A blank line is not a command either.
            if self.arguments.len() > self.commands.last().copied().unwrap_or(0) {
                self.commands.push(self.arguments.len());
            }
        }
        Ok(())
    }

    /// The number of complete commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// The complete commands, in the buffer they were parsed from.
    pub fn commands<'a>(&'a self, bytes: &'a [u8]) -> Commands<'a> {
        Commands { bytes, arguments: &self.arguments, ends: &self.commands }
    }

    /// Drops the complete commands.
    pub fn clear_complete(&mut self) {
        if let Some(end) = self.commands.last() {
            self.arguments.drain(..*end);
            self.commands.clear();
        }
    }

    /// The bytes at the start of the buffer that are no longer needed once the complete commands
    /// are dropped.
    pub fn used(&self) -> usize {
        self.begin
    }

    /// Adjusts the parser after those bytes were removed from the buffer.
    pub fn removed(&mut self) {
        let by = self.begin;
        for argument in &mut self.arguments {
            *argument = argument.start - by..argument.end - by;
        }
        match &mut self.state {
            ParserState::Begin => {}
            ParserState::Bulks { at, .. } => *at -= by,
            ParserState::Line { searched } => *searched -= by,
        }
        self.begin = 0;
    }

    /// The memory held, in bytes. Grows with the bytes that have arrived, never with announced
    /// lengths.
    pub fn held(&self) -> usize {
        self.arguments.capacity() * size_of::<Range<usize>>() + self.commands.capacity() * size_of::<usize>()
    }

    /// Frees the memory of a burst.
    pub fn shrink(&mut self) {
        self.arguments.shrink_to_fit();
        self.commands.shrink_to_fit();
    }

    /// Parses bulk strings. Returns the end of the command, or `None` if it is incomplete.
    fn bulks(
        &mut self,
        bytes: &[u8],
        mut left: usize,
        mut at: usize,
        bounds: &CommandBounds,
    ) -> Result<Option<usize>, ProtocolError> {
        while left > 0 {
            self.state = ParserState::Bulks { left, at };
            match bytes.get(at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => return Err(ProtocolError::ExpectedBulk(*other)),
            }
            let (begin, end) = match length(bytes, at + 1) {
                Length::Incomplete => return Ok(None),
                Length::Is(size, begin) if size <= bounds.bulk_len => (begin, begin + size),
                _ => return Err(ProtocolError::BulkLength(bounds.bulk_len)),
            };
            if end + 2 - self.begin > bounds.command_len {
                return Err(ProtocolError::CommandTooLong(bounds.command_len));
            }
            match bytes.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::BulkEnd),
                None => return Ok(None),
            }
            self.arguments.push(begin..end);
            left -= 1;
            at = end + 2;
        }
        Ok(Some(at))
    }

    /// Parses an inline command. Returns the end of its line, or `None` if it is incomplete.
    fn line(
        &mut self,
        bytes: &mut [u8],
        searched: usize,
        bounds: &CommandBounds,
    ) -> Result<Option<usize>, ProtocolError> {
        let end = memchr(b'\n', bytes.get(searched..).unwrap_or_default()).map(|index| searched + index);
        if end.unwrap_or(bytes.len()) - self.begin > bounds.command_len {
            return Err(ProtocolError::LineTooLong(bounds.command_len));
        }
        let Some(end) = end else {
            self.state = ParserState::Line { searched: bytes.len() };
            return Ok(None);
        };
        let line = bytes.get_mut(self.begin..end).unwrap_or_default();
        if inline::looks_like_http(line) {
            return Err(ProtocolError::Http);
        }
        let before = self.arguments.len();
        for word in inline::split(line) {
            let word = word.ok_or(ProtocolError::Quotes)?;
            if word.len() > bounds.bulk_len {
                return Err(ProtocolError::BulkLength(bounds.bulk_len));
            }
            if self.arguments.len() - before == bounds.arguments {
                return Err(ProtocolError::TooManyArguments(bounds.arguments));
            }
            self.arguments.push(self.begin + word.start..self.begin + word.end);
        }
        Ok(Some(end + 1))
    }
}

/// A length prefix.
enum Length {
    /// It has not arrived completely.
    Incomplete,
    /// It is not a length.
    Wrong,
    /// `-1`, and the start of the next line.
    Null(usize),
    /// A length, and the start of the next line.
    Is(usize, usize),
}

/// Parses the digits from `at` on, and the line end.
fn length(bytes: &[u8], at: usize) -> Length {
    /// No bound has more digits, and nine digits fit into any `usize`.
    const DIGITS_MAX: usize = 9;
    let line = bytes.get(at..).unwrap_or_default();
    // Nearly all lengths have one or two digits.
    match *line {
        [one @ b'0'..=b'9', b'\r', b'\n', ..] => return Length::Is(usize::from(one - b'0'), at + 3),
        [ten @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Length::Is(usize::from(ten - b'0') * 10 + usize::from(one - b'0'), at + 4);
        }
        _ => {}
    }
    let mut number = 0;
    for (index, byte) in line.iter().enumerate() {
        match byte {
            b'0'..=b'9' if index < DIGITS_MAX => number = number * 10 + usize::from(byte - b'0'),
            b'\r' if index > 0 => {
                return match line.get(index + 1) {
                    None => Length::Incomplete,
                    Some(b'\n') => Length::Is(number, at + index + 2),
                    Some(_) => Length::Wrong,
                };
            }
            b'-' if index == 0 => {
                const NULL: &[u8] = b"-1\r\n";
                return match line.get(..NULL.len()) {
                    Some(NULL) => Length::Null(at + NULL.len()),
                    None if NULL.starts_with(line) => Length::Incomplete,
                    _ => Length::Wrong,
                };
            }
            _ => return Length::Wrong,
        }
    }
    Length::Incomplete
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: CommandBounds = CommandBounds { arguments: 4, bulk_len: 20, command_len: 100 };

    type Commands = Vec<Vec<Vec<u8>>>;

    /// Parses bytes that arrive in chunks of this length.
    fn read(bytes: &[u8], chunk: usize) -> (Commands, Option<ProtocolError>, usize) {
        let (mut parser, mut buffer, mut commands) = (Parser::default(), Vec::new(), Vec::new());
        for chunk in bytes.chunks(chunk) {
            buffer.extend_from_slice(chunk);
            loop {
                let error = parser.parse(&mut buffer, 2, &BOUNDS).err();
                let found = parser.len();
                let taken = (0..found).map(|index| parser.commands(&buffer).get(index).unwrap());
                commands.extend(taken.map(|command| command.from(0).map(<[u8]>::to_vec).collect::<Vec<_>>()));
                parser.clear_complete();
                if error.is_some() {
                    return (commands, error, 0);
                }
                if found < 2 {
                    break;
                }
            }
            buffer.drain(..parser.used());
            parser.removed();
        }
        (commands, None, buffer.len())
    }

    /// Parses the bytes in one piece, and checks that chunks of every length give the same result.
    fn commands(bytes: &[u8]) -> Result<Commands, ProtocolError> {
        let whole = read(bytes, usize::MAX);
        for chunk in 1..bytes.len() {
            assert_eq!(read(bytes, chunk), whole, "{} in chunks of {chunk}", bytes.escape_ascii());
        }
        whole.1.map_or(Ok(whole.0), Err)
    }

    fn words(words: &[&[u8]]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.to_vec()).collect()
    }

    #[test]
    fn arrays_and_lines_are_commands_in_any_order() {
        let bytes = b"*2\r\n$4\r\nECHO\r\n$3\r\n\r\n\0\r\n PING  a\r\n\r\n*0\r\n*-1\r\n\n*1\r\n$0\r\n\r\nQUIT\n*3\r\n$1\r\nx\r\n";
        let expected =
            vec![words(&[b"ECHO", b"\r\n\0"]), words(&[b"PING", b"a"]), words(&[b""]), words(&[b"QUIT"])];
        assert_eq!(commands(bytes).unwrap(), expected);
    }

    #[test]
    fn quotes_hold_a_word_together() {
        for (line, expected) in [
            (&br#"a "b c" d"#[..], vec![&b"a"[..], b"b c", b"d"]),
            (br#""\x41\n\t\"\\\r\b\a\q" ''"#, vec![b"A\n\t\"\\\r\x08\x07q", b""]),
            (br"'it\'s \n' x", vec![b"it's \\n", b"x"]),
            (br#"a"b c"  d"#, vec![b"ab c", b"d"]),
            (br#""\xzz" "\x4""#, vec![b"xzz", b"x4"]),
        ] {
            let mut bytes = line.to_vec();
            bytes.extend_from_slice(b"\r\n");
            assert_eq!(commands(&bytes).unwrap(), vec![words(&expected)], "{}", line.escape_ascii());
        }
    }

    #[test]
    fn invalid_bytes_are_rejected_at_once() {
        use ProtocolError as Error;
        for (bytes, error) in [
            (&b"*x\r\n"[..], Error::ArrayLength),
            (b"*\r\n", Error::ArrayLength),
            (b"*-2\r\n", Error::ArrayLength),
            (b"*1\r\r", Error::ArrayLength),
            (b"*1\n", Error::ArrayLength),
            (b"*9999999999", Error::ArrayLength),
            (b"*5\r\n", Error::TooManyArguments(4)),
            (b"*1\r\n*1\r\n", Error::ExpectedBulk(b'*')),
            (b"*1\r\n+", Error::ExpectedBulk(b'+')),
            (b"*1\r\n$-1\r\n", Error::BulkLength(20)),
            (b"*1\r\n$21\r\n", Error::BulkLength(20)),
            (b"*1\r\n$999999999999", Error::BulkLength(20)),
            (b"*1\r\n$1\r\nabc", Error::BulkEnd),
            (
                b"*4\r\n$20\r\n12345678901234567890\r\n$20\r\n12345678901234567890\r\n$20\r\n12345678901234567890\r\n$20\r\n",
                Error::CommandTooLong(100),
            ),
            (&[b' '; 101], Error::LineTooLong(100)),
            (b"a b c d e\n", Error::TooManyArguments(4)),
            (b"123456789012345678901\n", Error::BulkLength(20)),
            (b"\"a\n", Error::Quotes),
            (b"'a\n", Error::Quotes),
            (b"\"a\"b\n", Error::Quotes),
            (b"'a'b\n", Error::Quotes),
            (b"POST / HTTP/1.1\r\n", Error::Http),
            (b"get /x\r\n", Error::Http),
            (b"Host: localhost\r\n", Error::Http),
            (b"PRI * HTTP/2.0\r\n", Error::Http),
        ] {
            assert_eq!(commands(bytes), Err(error), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn commands_before_an_error_are_kept() {
        let (commands, error, _) = read(b"PING\r\n*1\r\n$4\r\nQUIT\r\n*1\r\n+", usize::MAX);
        assert_eq!(commands, vec![words(&[b"PING"]), words(&[b"QUIT"])]);
        assert_eq!(error, Some(ProtocolError::ExpectedBulk(b'+')));
    }

    #[test]
    fn announced_lengths_cost_no_memory() {
        let generous = CommandBounds { arguments: 1_000_000, bulk_len: 1 << 29, command_len: 1 << 29 };
        let mut parser = Parser::default();
        parser.parse(&mut b"*1000000\r\n$500000000\r\nx".to_vec(), 128, &generous).unwrap();
        assert_eq!(parser.held(), 0);
    }

    /// Millions of bytes, one by one. A parser that starts over for each byte would take hours.
    #[test]
    fn bytes_that_arrive_one_by_one_are_parsed_once() {
        let generous = CommandBounds { arguments: 1_000_000, bulk_len: 1 << 24, command_len: 1 << 24 };
        let line = [&b"PING"[..], &vec![b' '; 1 << 22], b"\n"].concat();
        let long = [&b"*1\r\n$4194304\r\n"[..], &vec![b'x'; 1 << 22], b"\r\n"].concat();
        let many = [&b"*200000\r\n"[..], &b"$0\r\n\r\n".repeat(200_000)].concat();
        for mut bytes in [line, long, many] {
            let began = std::time::Instant::now();
            let mut parser = Parser::default();
            for end in 1..bytes.len() {
                parser.parse(&mut bytes[..end], 128, &generous).unwrap();
                assert_eq!(parser.len(), 0);
            }
            parser.parse(&mut bytes, 128, &generous).unwrap();
            assert_eq!((parser.len(), parser.used()), (1, bytes.len()));
            assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
        }
    }
}
