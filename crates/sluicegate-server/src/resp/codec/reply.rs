//! Replies to bytes, in the version of the protocol that the client speaks.

/// The version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Version {
    /// What a client speaks that has not said `HELLO 3`.
    #[default]
    Resp2,
    /// The one with maps and a nil of its own.
    Resp3,
}

impl Version {
    /// As `HELLO` says it.
    pub const fn number(self) -> u8 {
        match self {
            Version::Resp2 => 2,
            Version::Resp3 => 3,
        }
    }
}

/// Replies that wait to be sent. One buffer for all of a connection.
#[derive(Default, Debug)]
pub struct Replies {
    bytes: Vec<u8>,
    /// What the client speaks.
    pub version: Version,
}

impl Replies {
    /// What waits.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All of it was sent.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// How many bytes of memory are held.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives back memory that a burst has needed.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// A word of ours: `+OK`.
    pub fn simple(&mut self, word: &'static str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(word.as_bytes());
        self.line_end();
    }

    /// An error, which begins with its code: `ERR ...`. Whatever it says, it is one line, and not a long one: a client that
    /// could write its own line ends here would forge replies.
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

    /// A whole number.
    pub fn integer(&mut self, number: impl itoa::Integer) {
        self.headed(b':', number);
    }

    /// Any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.headed(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.line_end();
    }

    /// Nothing.
    pub fn nil(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// So many items follow.
    pub fn array(&mut self, items: usize) {
        self.headed(b'*', items);
    }

    /// So many pairs follow; for who does not know maps, an array of twice as many items.
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
    fn an_error_is_one_short_line_whatever_it_says() {
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
