//! Counts replies in a stream of bytes, and refuses what is not one. It keeps no bytes: between two
//! reads it remembers only where it is, so that the generator stays light.

/// Arrays within arrays that a script may answer with, and more than any does.
const DEPTH_MAX: usize = 4;

/// Where the stream is, and what has come so far.
#[derive(Default)]
pub struct Replies {
    /// Whole replies.
    pub complete: u64,
    /// Of them, errors.
    pub errors: u64,
    /// Of the arrays, those whose first number is 1: `limited` of CL.THROTTLE, `allowed` of
    /// RL.CHECK.
    pub ones: u64,
    /// Items that the arrays under way still lack, the outermost first.
    open: Vec<u64>,
    /// Whether the next item is the first of an outermost array.
    first: bool,
    /// Bytes of a string that are still to come, its line end included.
    string: usize,
    /// The sign that the line under way begins with, and its number so far.
    sign: u8,
    number: u64,
    negative: bool,
    begun: bool,
}

impl Replies {
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut at = 0;
        while at < bytes.len() {
            if self.string > 0 {
                let here = self.string.min(bytes.len() - at);
                (self.string, at) = (self.string - here, at + here);
                if self.string == 0 {
                    self.item();
                }
                continue;
            }
            let byte = bytes[at];
            at += 1;
            if !self.begun {
                if !matches!(byte, b'*' | b':' | b'+' | b'-' | b'$' | b'_') {
                    return Err(format!("a reply begins with {:?}", byte as char));
                }
                (self.begun, self.sign, self.number, self.negative) = (true, byte, 0, false);
            } else if byte == b'\n' {
                self.begun = false;
                self.line()?;
            } else if byte.is_ascii_digit() {
                self.number = self.number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            } else if byte == b'-' {
                self.negative = true;
            } else if byte != b'\r' && !matches!(self.sign, b'+' | b'-') {
                return Err(format!("a number has the byte {:?}", byte as char));
            }
        }
        Ok(())
    }

    /// A line has ended.
    fn line(&mut self) -> Result<(), String> {
        match self.sign {
            b'*' if self.open.len() == DEPTH_MAX => {
                return Err(format!("arrays within arrays, more than {DEPTH_MAX} deep"));
            }
            b'*' if self.number > 0 && !self.negative => {
                self.first = self.open.is_empty();
                self.open.push(self.number);
            }
            b'$' if !self.negative => self.string = self.number as usize + 2,
            b'-' => {
                self.errors += 1;
                self.item();
            }
            _ => {
                if self.first && self.number == 1 && !self.negative {
                    self.ones += 1;
                }
                self.item();
            }
        }
        Ok(())
    }

    /// An item has ended, and with it the arrays whose last one it was. It is a reply unless it is
    /// in an array that lacks more.
    fn item(&mut self) {
        self.first = false;
        while let Some(lacking) = self.open.last_mut() {
            *lacking -= 1;
            if *lacking > 0 {
                return;
            }
            self.open.pop();
        }
        self.complete += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPTH_MAX, Replies};

    #[test]
    fn replies_are_counted_however_the_bytes_are_cut() {
        let bytes = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n+PONG\r\n$-1\r\n-ERR no: -5\r\n*7\r\n:1\r\n:1\r\n:1\r\n:-1\r\n:9\r\n:0\r\n$-1\r\n$2\r\n\r\n\r\n:1\r\n*3\r\n:1\r\n*2\r\n:1\r\n*1\r\n:1\r\n:1\r\n";
        for cut in 0..bytes.len() {
            let mut replies = Replies::default();
            replies.take(&bytes[..cut]).unwrap();
            replies.take(&bytes[cut..]).unwrap();
            assert_eq!((replies.complete, replies.errors, replies.ones), (8, 1, 2), "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        assert!(Replies::default().take(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(Replies::default().take(b":1x\r\n").is_err());
        assert!(Replies::default().take(&b"*1\r\n".repeat(DEPTH_MAX + 1)).is_err());
    }
}
