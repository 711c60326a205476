//! The part of RESP that `sluice check` needs. Whatever a server sends, it cannot make
//! us hold or wait for more than a little.

use std::io::{self, BufRead, Read as _};

/// The longest line and text, in bytes.
const LEN_MAX: u64 = 64 * 1024;
/// The most items of a list.
const ITEMS_MAX: i64 = 64;

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Number(i64),
    Text(String),
    Nothing,
    SyntaxError(String),
    List(Vec<Reply>),
}

/// Reads one reply. Lists do not stand in lists.
pub(super) fn read(from: &mut impl BufRead) -> io::Result<Reply> {
    let line = line(from)?;
    match items(&line)? {
        Some(items) => (0..items).map(|_| item(from, self::line)).collect::<io::Result<_>>().map(Reply::List),
        None => item(from, |_| Ok(line)),
    }
}

/// How many items follow, if this line begins a list.
fn items(line: &str) -> io::Result<Option<i64>> {
    match line.strip_prefix('*') {
        None | Some("-1") => Ok(None),
        Some(items) => match items.parse() {
            Ok(items @ 0..=ITEMS_MAX) => Ok(Some(items)),
            _ => Err(strange()),
        },
    }
}

fn item<R: BufRead>(from: &mut R, line: impl FnOnce(&mut R) -> io::Result<String>) -> io::Result<Reply> {
    let line = line(from)?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(strange)?;
    match (kind, rest) {
        ("+", text) => Ok(Reply::Text(text.to_owned())),
        ("-", text) => Ok(Reply::SyntaxError(text.to_owned())),
        (":", number) => number.parse().map(Reply::Number).map_err(|_| strange()),
        ("_", "") | ("$" | "*", "-1") => Ok(Reply::Nothing),
        ("$", length) => {
            let length: u64 = length.parse().ok().filter(|length| *length <= LEN_MAX).ok_or_else(strange)?;
            let mut bytes = Vec::new();
            from.by_ref().take(length + 2).read_to_end(&mut bytes)?;
            let text =
                bytes.strip_suffix(b"\r\n").filter(|text| text.len() as u64 == length).ok_or_else(ended)?;
            Ok(Reply::Text(String::from_utf8_lossy(text).into_owned()))
        }
        _ => Err(strange()),
    }
}

/// A line without its end.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.by_ref().take(LEN_MAX).read_until(b'\n', &mut bytes)?;
    let line = bytes.strip_suffix(b"\r\n");
    let line = line.ok_or_else(|| if bytes.len() as u64 == LEN_MAX { strange() } else { ended() })?;
    Ok(String::from_utf8_lossy(line).into_owned())
}

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it does not speak RESP like sluice serve")
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(mut bytes: &[u8]) -> Result<Reply, String> {
        read(&mut bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn replies_are_read() {
        let text = |text: &str| Reply::Text(text.to_owned());
        for (bytes, reply) in [
            ("+OK\r\n", text("OK")),
            (":-2\r\n", Reply::Number(-2)),
            ("$-1\r\n", Reply::Nothing),
            ("_\r\n", Reply::Nothing),
            ("-ERR no\r\n", Reply::SyntaxError("ERR no".into())),
            ("$4\r\na\r\nb\r\n", text("a\r\nb")),
            ("*3\r\n:1\r\n$0\r\n\r\n$-1\r\n", Reply::List(vec![Reply::Number(1), text(""), Reply::Nothing])),
        ] {
            assert_eq!(read_all(bytes.as_bytes()), Ok(reply), "{bytes:?}");
        }
    }

    #[test]
    fn invalid_and_incomplete_replies_are_rejected_without_a_wait_or_an_allocation() {
        let strange = "it does not speak RESP like sluice serve";
        let ended = "it closed the connection";
        for (bytes, reason) in [
            ("HTTP/1.1 400 Bad Request\r\n", strange),
            ("\r\n", strange),
            ("ö\r\n", strange),
            ("$65537\r\n", strange),
            ("$99999999999999999999\r\n", strange),
            ("*65\r\n", strange),
            ("*1\r\n*1\r\n:1\r\n", strange),
            (":x\r\n", strange),
            ("", ended),
            ("+OK", ended),
            ("$5\r\nabc\r\n", ended),
            ("$3\r\nabcde\r\n", ended),
            ("*2\r\n:1\r\n", ended),
        ] {
            assert_eq!(read_all(bytes.as_bytes()), Err(reason.to_owned()), "{bytes:?}");
        }
        // A line without an end is not read for ever.
        assert_eq!(read(&mut io::BufReader::new(io::repeat(b'+'))).unwrap_err().to_string(), strange);
    }
}
