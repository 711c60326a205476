//! Encodes replies, in the protocol version of the client.

/// The protocol version.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Version {
    /// The version of a client that has not sent `HELLO 3`.
    #[default]
    Resp2,
    /// The version with maps and a nil type.
    Resp3,
}

impl Version {
    /// The number that `HELLO` uses.
    pub const fn number(self) -> u8 {
        match self {
            Version::Resp2 => 2,
            Version::Resp3 => 3,
        }
    }
}

/// The pending replies of a connection, in one buffer.
#[derive(Default, Debug)]
pub struct Replies {
    bytes: Vec<u8>,
    /// The client's protocol version.
    pub version: Version,
}

impl Replies {
    /// The pending bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops the bytes once they are sent.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The memory held, in bytes.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees the memory of a burst.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Writes a simple string: `+OK`.
    pub fn simple(&mut self, word: &'static str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(word.as_bytes());
        self.line_end();
    }

    /// Writes an error, which starts with its code: `ERR ...`. Control characters are escaped and
    /// long texts truncated: text of a client could otherwise end the line and forge replies.
    pub fn error(&mut self, text: &str) {
        const ERROR_LEN_MAX: usize = 512;
        self.bytes.push(b'-');
        let begin = self.bytes.len();
        for letter in text.chars() {
            if self.bytes.len() - begin >= ERROR_LEN_MAX {
                self.bytes.extend_from_slice(b"...");
                break;
            }
            if letter.is_control() {
                self.bytes.extend(letter.escape_default().map(|part| u8::try_from(part).unwrap_or(b'?')));
            } else {
                self.bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        self.line_end();
    }

    /// Writes an integer.
    pub fn integer(&mut self, number: impl itoa::Integer) {
        self.headed(b':', number);
    }

    /// Writes a bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.headed(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.line_end();
    }

    /// Writes nil.
    pub fn nil(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// Writes the head of an array.
    pub fn array(&mut self, items: usize) {
        self.headed(b'*', items);
    }

    /// Writes the head of a map; in RESP2, that of an array of twice as many items.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Resp2 => self.array(pairs * 2),
            Version::Resp3 => self.headed(b'%', pairs),
        }
    }

    fn headed(&mut self, mark: u8, number: impl itoa::Integer) {
        self.bytes.push(mark);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.line_end();
    }

    fn line_end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_always_one_short_line() {
        let mut replies = Replies::default();
        replies.error("ERR no rule \"a\r\nb\"\0 \u{9b}\u{fc}");
        assert_eq!(replies.bytes(), "-ERR no rule \"a\\r\\nb\"\\u{0} \\u{9b}\u{fc}\r\n".as_bytes());
        replies.clear();
        replies.error(&"\n".repeat(10_000));
        assert!(replies.bytes().len() < 600 && replies.bytes().ends_with(b"...\r\n"));
    }

    #[test]
    fn nil_and_maps_depend_on_the_version() {
        let written = |version| {
            let mut replies = Replies { version, ..Replies::default() };
            replies.nil();
            replies.map(1);
            replies.bulk(b"a\r");
            replies.integer(-5);
            replies.bytes().escape_ascii().to_string()
        };
        assert_eq!(written(Version::Resp2), r"$-1\r\n*2\r\n$2\r\na\r\r\n:-5\r\n");
        assert_eq!(written(Version::Resp3), r"_\r\n%1\r\n$2\r\na\r\r\n:-5\r\n");
    }
}
