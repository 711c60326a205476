//! Keys as bytes, for shared stores.
//!
//! ```text
//! "user:42"          user:42             text and bytes are themselves
//! 7                  ~n7;                anything else starts with ~
//! 203.0.113.9        ~a203.0.113.9;
//! ("acme", "reply")  ~t2;4:acme5:reply   a tuple, then its parts; bytes follow their length
//! "~x"               ~2:~x               so do bytes that start with ~
//! ```
//!
//! The encoding is unambiguous, so different keys have different bytes.

use super::{ADDRESS, Key, KeyWriter, NEGATIVE, NUMBER, Seeds};
use std::borrow::Cow;
use std::io::Write as _;
use std::net::Ipv6Addr;
use std::sync::LazyLock;

/// The first byte of a key that is not plain bytes.
const MARK: u8 = b'~';

/// The parts of a key, as they are written.
#[derive(Default)]
pub(super) struct Parts {
    written: Vec<u8>,
    count: usize,
    /// Where the bytes of the last part start, if it is bytes.
    bytes_from: Option<usize>,
}

impl Parts {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.add(format_args!("{}:", bytes.len()));
        self.bytes_from = Some(self.written.len());
        self.written.extend_from_slice(bytes);
    }

    pub(super) fn tuple(&mut self, parts: usize) {
        self.add(format_args!("t{parts};"));
    }

    pub(super) fn wide(&mut self, kind: u64, value: u128) {
        match kind {
            ADDRESS => {
                let address = Ipv6Addr::from_bits(value);
                match address.to_ipv4_mapped() {
                    Some(address) => self.add(format_args!("a{address};")),
                    None => self.add(format_args!("a{address};")),
                }
            }
            NUMBER => self.add(format_args!("n{value};")),
            NEGATIVE => self.add(format_args!("n-{value};")),
            // A kind without a letter of its own is identified by its number.
            kind => self.add(format_args!("k{kind:x}={value};")),
        }
    }

    fn add(&mut self, part: std::fmt::Arguments<'_>) {
        self.count += 1;
        self.bytes_from = None;
        // Writing to memory does not fail.
        let _ = self.written.write_fmt(part);
    }
}

/// The bytes of the key that `write` writes.
pub(super) fn of(write: &dyn Fn(&mut KeyWriter<'_>)) -> Vec<u8> {
    // Nothing is hashed, but a writer needs seeds.
    static UNUSED: LazyLock<Seeds> = LazyLock::new(Seeds::random);
    let mut parts = Parts { written: vec![MARK], ..Parts::default() };
    write(&mut UNUSED.writer(Some(&mut parts)));
    match parts.bytes_from {
        Some(from) if parts.count == 1 && parts.written.get(from) != Some(&MARK) => {
            parts.written.split_off(from)
        }
        _ => parts.written,
    }
}

/// The bytes of a key that is plain bytes.
pub(super) fn of_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.first() == Some(&MARK) { Cow::Owned(of(&|to| bytes.write(to))) } else { Cow::Borrowed(bytes) }
}

/// The plain bytes that [`Key::to_bytes`] was called on. `None` if the key was not plain bytes.
pub fn raw(bytes: &[u8]) -> Option<&[u8]> {
    let Some(marked) = bytes.strip_prefix(&[MARK]) else { return Some(bytes) };
    let colon = marked.iter().position(|byte| *byte == b':')?;
    let (length, rest) = marked.split_at(colon);
    let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
    rest.get(1..).filter(|raw| raw.len() == length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn text(key: impl Key) -> String {
        String::from_utf8(key.to_bytes().into_owned()).unwrap()
    }

    #[test]
    fn the_bytes_of_a_key_are_readable() {
        let mapped: IpAddr = "::ffff:203.0.113.9".parse().unwrap();
        let wide: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(text("user:42"), "user:42");
        assert_eq!(text(Box::<str>::from("user:42")), "user:42");
        assert_eq!(text(7), "~n7;");
        assert_eq!(text(-7_i64), "~n-7;");
        assert_eq!(text(()), "~t0;");
        assert_eq!(text(mapped), "~a203.0.113.9;");
        assert_eq!(text(wide), "~a2001:db8::1;");
        assert_eq!(text(("acme", "reply")), "~t2;4:acme5:reply");
        assert_eq!(text("~x"), "~2:~x");
        assert_eq!(text(""), "");
    }

    #[test]
    fn different_keys_have_different_bytes() {
        let keys = [
            text("ab"),
            text(("ab",)),
            text(("a", "b")),
            text((("a", "b"), "")),
            text(("a", "b", "")),
            text("~t2;1:a1:b"),
            text("~2:ab"),
            text("~n7;"),
            text(7),
            text("7"),
            text((7,)),
            text(("7",)),
            text(()),
            text(""),
            text("~"),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn plain_bytes_are_recovered() {
        for key in ["", "user:42", "~", "~x", "~2:~x", "~t0;", "~9:short"] {
            assert_eq!(raw(&key.to_bytes()), Some(key.as_bytes()), "{key}");
        }
        for bytes in [
            ("a", "b").to_bytes(),
            7.to_bytes(),
            ().to_bytes(),
            "203.0.113.9".parse::<IpAddr>().unwrap().to_bytes(),
        ] {
            assert_eq!(raw(&bytes), None);
        }
    }
}
