//! Commands out of bytes, without copying them.
//!
//! A command is an array of bulk strings, `*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n`, or a line of words, `ECHO hi\r\n`. Nothing
//! else is one: no nesting, no other types, so that the parser needs no stack. It allocates nothing for what has not
//! arrived, whatever lengths are announced; and it remembers how far it got, so that bytes that come one by one are not
//! looked at again and again.

use super::words;
use memchr::memchr;
use std::fmt;
use std::ops::Range;

/// The bounds of what a client may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The most arguments of a command, its name included.
    pub arguments: usize,
    /// The longest argument in bytes.
    pub bulk_len: usize,
    /// The longest command in bytes, all of it; also the longest line of words.
    pub command_len: usize,
}

/// Finds the commands in a buffer to whose end bytes are appended. Several are found at once, to be answered together.
#[derive(Default, Debug)]
pub struct Parser {
    /// The arguments of all commands that were found, as places in the buffer, and then those of the one that is being read.
    arguments: Vec<Range<usize>>,
    /// Where in `arguments` each complete command ends.
    commands: Vec<usize>,
    /// Where in the buffer the command that is being read begins.
    begin: usize,
    state: State,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum State {
    #[default]
    Begin,
    /// In an array: so many bulk strings are still to come, and the next begins here.
    Bulks { left: usize, at: usize },
    /// In a line of words: there is no line end before this place.
    Line { searched: usize },
}

/// A command in the bytes it was read from.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    bytes: &'a [u8],
    arguments: &'a [Range<usize>],
}

/// What is not a command. The connection cannot go on, as nobody knows where the next one begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// An array that does not say how long it is.
    ArrayLength,
    /// More arguments than there may be.
    TooManyArguments(usize),
    /// Something else than a bulk string in an array.
    ExpectedBulk(u8),
    /// A bulk string that does not say how long it is, or is longer than it may be.
    BulkLength(usize),
    /// A bulk string that does not end where it said.
    BulkEnd,
    /// A command that is longer than it may be.
    CommandTooLong(usize),
    /// A line that is longer than it may be.
    LineTooLong(usize),
    /// Quotes in a line that do not match.
    Quotes,
    /// Neither an array nor a line of text.
    NotText,
    /// A web page that tries to speak to us, or someone at the wrong port.
    Http,
}

impl fmt::Display for ProtocolError {
    /// In the words of Redis where it has some.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::ArrayLength => {
                f.write_str("invalid multibulk length; write how many arguments follow, as in *1")
            }
            ProtocolError::TooManyArguments(most) => {
                write!(f, "invalid multibulk length; a command has at most {most} arguments")
            }
            ProtocolError::ExpectedBulk(byte) => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            ProtocolError::BulkLength(most) => {
                write!(f, "invalid bulk length; an argument has at most {most} bytes")
            }
            ProtocolError::BulkEnd => f.write_str("a bulk string does not end where it said"),
            ProtocolError::CommandTooLong(most) => {
                write!(f, "too big command; all of it has at most {most} bytes")
            }
            ProtocolError::LineTooLong(most) => {
                write!(f, "too big inline request; a line has at most {most} bytes")
            }
            ProtocolError::Quotes => f.write_str(
                "unbalanced quotes in request; close each quote, and write a blank or nothing after it",
            ),
            ProtocolError::NotText => f.write_str(
                "expected '*' or a line of text; if this is TLS, the server was started without it",
            ),
            ProtocolError::Http => f.write_str("this port speaks RESP, not HTTP"),
        }
    }
}

impl std::error::Error for ProtocolError {}

impl<'a> Command<'a> {
    /// How many arguments there are, the name included.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Never: a command has a name.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// One argument; 0 is the name.
    pub fn get(&self, place: usize) -> Option<&'a [u8]> {
        self.bytes.get(self.arguments.get(place)?.clone())
    }

    /// The arguments from a place on.
    pub fn from(&self, place: usize) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        let rest = self.arguments.get(place..).unwrap_or_default();
        rest.iter().filter_map(move |argument| bytes.get(argument.clone()))
    }
}

impl Parser {
    /// Reads on until there are `most` commands, or the bytes end. Lines are unquoted in place.
    ///
    /// # Errors
    /// At what cannot be a command, whatever follows. The commands before it are there all the same.
    pub fn parse(&mut self, bytes: &mut [u8], most: usize, bounds: &Bounds) -> Result<(), ProtocolError> {
        while self.commands.len() < most {
            let end = match self.state {
                State::Begin => match bytes.get(self.begin) {
                    None => return Ok(()),
                    Some(b'*') => match length(bytes, self.begin + 1) {
                        Length::Incomplete => return Ok(()),
                        Length::Wrong => return Err(ProtocolError::ArrayLength),
                        // An empty array is no command, and gets no reply.
                        Length::Null(next) | Length::Is(0, next) => {
                            self.begin = next;
                            continue;
                        }
                        Length::Is(left, _) if left > bounds.arguments => {
                            return Err(ProtocolError::TooManyArguments(bounds.arguments));
                        }
                        Length::Is(left, at) => self.bulks(bytes, left, at, bounds)?,
                    },
                    // What a browser says first in TLS, and nothing that anybody types.
                    Some(0..=8 | 14..=31 | 127..) => return Err(ProtocolError::NotText),
                    Some(_) => self.line(bytes, self.begin, bounds)?,
                },
                State::Bulks { left, at } => self.bulks(bytes, left, at, bounds)?,
                State::Line { searched } => self.line(bytes, searched, bounds)?,
            };
            let Some(end) = end else { return Ok(()) };
            self.state = State::Begin;
            self.begin = end;
            // A line of blanks is no command either.
            if self.arguments.len() > self.commands.last().copied().unwrap_or(0) {
                self.commands.push(self.arguments.len());
            }
        }
        Ok(())
    }

    /// How many complete commands there are.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// A command, in the buffer it was read from.
    pub fn get<'a>(&'a self, bytes: &'a [u8], place: usize) -> Option<Command<'a>> {
        let end = *self.commands.get(place)?;
        let begin = place.checked_sub(1).and_then(|before| self.commands.get(before)).copied().unwrap_or(0);
        Some(Command { bytes, arguments: self.arguments.get(begin..end)? })
    }

    /// Forgets the complete commands.
    pub fn forget(&mut self) {
        if let Some(end) = self.commands.last() {
            self.arguments.drain(..*end);
            self.commands.clear();
        }
    }

    /// How many bytes at the beginning of the buffer are not needed any more, once the complete commands are forgotten.
    pub fn used(&self) -> usize {
        self.begin
    }

    /// Tells the parser that those bytes have been removed.
    pub fn removed(&mut self) {
        let by = self.begin;
        for argument in &mut self.arguments {
            *argument = argument.start - by..argument.end - by;
        }
        match &mut self.state {
            State::Begin => {}
            State::Bulks { at, .. } => *at -= by,
            State::Line { searched } => *searched -= by,
        }
        self.begin = 0;
    }

    /// How many bytes of memory it holds. It grows with what has arrived, never with what was announced.
    pub fn held(&self) -> usize {
        self.arguments.capacity() * size_of::<Range<usize>>() + self.commands.capacity() * size_of::<usize>()
    }

    /// Gives back memory that a burst has needed.
    pub fn shrink(&mut self) {
        self.arguments.shrink_to_fit();
        self.commands.shrink_to_fit();
    }

    /// Reads bulk strings. Where the command ends, if it does.
    fn bulks(
        &mut self,
        bytes: &[u8],
        mut left: usize,
        mut at: usize,
        bounds: &Bounds,
    ) -> Result<Option<usize>, ProtocolError> {
        while left > 0 {
            self.state = State::Bulks { left, at };
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

    /// Reads a line of words, which has no end before `searched`. Where the line ends, if it does.
    fn line(
        &mut self,
        bytes: &mut [u8],
        searched: usize,
        bounds: &Bounds,
    ) -> Result<Option<usize>, ProtocolError> {
        let end = memchr(b'\n', bytes.get(searched..).unwrap_or_default()).map(|place| searched + place);
        if end.unwrap_or(bytes.len()) - self.begin > bounds.command_len {
            return Err(ProtocolError::LineTooLong(bounds.command_len));
        }
        let Some(end) = end else {
            self.state = State::Line { searched: bytes.len() };
            return Ok(None);
        };
        let line = bytes.get_mut(self.begin..end).unwrap_or_default();
        if words::begins_like_http(line) {
            return Err(ProtocolError::Http);
        }
        let before = self.arguments.len();
        for word in words::split(line) {
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

/// What a line that announces a length says.
enum Length {
    /// It has not arrived in full.
    Incomplete,
    /// It is no length.
    Wrong,
    /// `-1`, and where the next line begins.
    Null(usize),
    /// A length, and where the next line begins.
    Is(usize, usize),
}

/// Reads the digits from `at` on, and the line end.
fn length(bytes: &[u8], at: usize) -> Length {
    /// No bound has more digits; and so many fit into any `usize`.
    const DIGITS_MAX: usize = 9;
    let line = bytes.get(at..).unwrap_or_default();
    // Nearly all are this short.
    match *line {
        [one @ b'0'..=b'9', b'\r', b'\n', ..] => return Length::Is(usize::from(one - b'0'), at + 3),
        [ten @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Length::Is(usize::from(ten - b'0') * 10 + usize::from(one - b'0'), at + 4);
        }
        _ => {}
    }
    let mut number = 0;
    for (place, byte) in line.iter().enumerate() {
        match byte {
            b'0'..=b'9' if place < DIGITS_MAX => number = number * 10 + usize::from(byte - b'0'),
            b'\r' if place > 0 => {
                return match line.get(place + 1) {
                    None => Length::Incomplete,
                    Some(b'\n') => Length::Is(number, at + place + 2),
                    Some(_) => Length::Wrong,
                };
            }
            b'-' if place == 0 => {
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

    const BOUNDS: Bounds = Bounds { arguments: 4, bulk_len: 20, command_len: 100 };

    type Commands = Vec<Vec<Vec<u8>>>;

    /// What the bytes say when they come in chunks of this length, and how it ended.
    fn read(bytes: &[u8], chunk: usize) -> (Commands, Option<ProtocolError>, usize) {
        let (mut parser, mut buffer, mut commands) = (Parser::default(), Vec::new(), Vec::new());
        for chunk in bytes.chunks(chunk) {
            buffer.extend_from_slice(chunk);
            loop {
                let error = parser.parse(&mut buffer, 2, &BOUNDS).err();
                let found = parser.len();
                let taken = (0..found).map(|place| parser.get(&buffer, place).unwrap());
                commands.extend(taken.map(|command| command.from(0).map(<[u8]>::to_vec).collect::<Vec<_>>()));
                parser.forget();
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

    /// The same in one piece and in pieces of every length.
    fn commands(bytes: &[u8]) -> Result<Commands, ProtocolError> {
        let whole = read(bytes, usize::MAX);
        for chunk in 1..bytes.len() {
            assert_eq!(read(bytes, chunk), whole, "{} in pieces of {chunk}", bytes.escape_ascii());
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
    fn what_cannot_be_a_command_is_refused_at_once() {
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
    fn the_commands_before_a_mistake_are_there() {
        let (commands, error, _) = read(b"PING\r\n*1\r\n$4\r\nQUIT\r\n*1\r\n+", usize::MAX);
        assert_eq!(commands, vec![words(&[b"PING"]), words(&[b"QUIT"])]);
        assert_eq!(error, Some(ProtocolError::ExpectedBulk(b'+')));
    }

    #[test]
    fn announced_lengths_cost_no_memory() {
        let generous = Bounds { arguments: 1_000_000, bulk_len: 1 << 29, command_len: 1 << 29 };
        let mut parser = Parser::default();
        parser.parse(&mut b"*1000000\r\n$500000000\r\nx".to_vec(), 128, &generous).unwrap();
        assert_eq!(parser.held(), 0);
    }

    /// Millions of bytes one by one. Were each looked at again when the next one comes, this would take hours.
    #[test]
    fn bytes_that_come_one_by_one_are_looked_at_once() {
        let generous = Bounds { arguments: 1_000_000, bulk_len: 1 << 24, command_len: 1 << 24 };
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
