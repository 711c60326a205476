//! The client's address as reported by proxies, in `X-Forwarded-For` or `Forwarded`.
//!
//! Each proxy appends the address it was called from. Earlier entries came from further out, and
//! the client may have written them. So the list is read from the right, only as far as our own
//! proxies wrote it: with `hops` proxies, the `hops`-th entry from the right was written by the
//! outermost proxy and names the client. Entries to its left are never read, not even to find where
//! entries begin and end.
//!
//! ```text
//! client 198.51.100.7 ──▶ proxy 10.0.0.2 ──▶ proxy 10.0.0.1 ──▶ this service
//! X-Forwarded-For: 1.1.1.1, 198.51.100.7, 10.0.0.2        peer 10.0.0.1
//!                  made up  hops = 2      hops = 1        hops = 0
//! ```

use super::address::{NO_PEER, Network, peer};
use super::{KeyExtractor, MissingKey, RequestKey};
use crate::RequestHead;
use http::HeaderName;
use http::header::FORWARDED;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address as reported by trusted proxies; created by [`forwarded_ip`].
#[derive(Clone, Debug)]
pub struct ForwardedIp {
    hops: usize,
    field: Field,
    network: Network,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    XForwardedFor,
    Forwarded,
}

/// The client's address behind `hops` proxies of yours, read from `X-Forwarded-For` (or
/// `Forwarded`: [`ForwardedIp::rfc7239`]), counted from the right. With 0 it is the peer's address.
///
/// Count exactly the proxies that append to the field and that every request passes. If the number
/// is too high, clients choose their own key; if it is too low, all clients share one. The service
/// must be reachable through the proxies only.
///
/// - A list with fewer entries did not pass all proxies; its first entry, written by one of them,
///   is used.
/// - Without the field the request passed no proxy: the peer's address is used.
/// - An entry that is not an address (`unknown`, or an invented name) is not a key: see
///   [`crate::OnMissingKey`].
pub fn forwarded_ip(hops: usize) -> ForwardedIp {
    ForwardedIp { hops, field: Field::XForwardedFor, network: Network::DEFAULT }
}

impl ForwardedIp {
    /// Reads `Forwarded: for=...` (RFC 7239) instead of `X-Forwarded-For`. Never both: clients can
    /// write the field that your proxies do not.
    #[must_use]
    pub fn rfc7239(self) -> ForwardedIp {
        ForwardedIp { field: Field::Forwarded, ..self }
    }

    /// Sets how many bits of an IPv6 address count; see [`super::PeerIp::ipv6_prefix`].
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> ForwardedIp {
        ForwardedIp { network: Network::new(bits), ..self }
    }

    /// Returns the trusted entry.
    fn entry<'a>(&self, head: &RequestHead<'a>) -> Option<&'a [u8]> {
        let name = if self.field == Field::XForwardedFor { X_FORWARDED_FOR } else { FORWARDED };
        // Several field lines are one list, in order.
        let lines = head.headers.get_all(name).iter().rev();
        let entries = lines.flat_map(|line| EntriesFromRight(Some(line.as_bytes())));
        entries.take(self.hops).last()
    }

    fn read(&self, entry: &[u8]) -> Option<IpAddr> {
        match self.field {
            Field::XForwardedFor => address(entry),
            Field::Forwarded => for_parameter(entry),
        }
    }
}

impl KeyExtractor for ForwardedIp {
    fn extract<'a>(&'a self, head: &RequestHead<'a>) -> Result<RequestKey<'a>, MissingKey> {
        let address = match self.entry(head) {
            Some(entry) => self.read(entry).ok_or(MissingKey::Absent),
            None => peer(head).ok_or(MissingKey::NotProvided(NO_PEER)),
        };
        address.map(|address| self.network.key(address))
    }
}

/// Iterates over the entries of a list from right to left. A quoted comma does not separate
/// entries.
struct EntriesFromRight<'a>(Option<&'a [u8]>);

impl<'a> Iterator for EntriesFromRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        let mut quoted = false;
        let comma = rest.iter().enumerate().rposition(|(position, byte)| {
            if *byte == b'"' && !is_escaped(rest, position) {
                quoted = !quoted;
            }
            *byte == b',' && !quoted
        });
        let (left, entry) = match comma {
            Some(position) => (Some(&rest[..position]), &rest[position + 1..]),
            None => (None, rest),
        };
        self.0 = left;
        Some(entry.trim_ascii())
    }
}

/// Returns `true` if an odd number of backslashes precedes a byte.
fn is_escaped(text: &[u8], position: usize) -> bool {
    text[..position].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Returns the address in `for="[2001:db8::17]:4711";proto=https`.
fn for_parameter(entry: &[u8]) -> Option<IpAddr> {
    let value_of_for = |pair: &'_ [u8]| -> Option<IpAddr> {
        let (name, value) = pair.trim_ascii().split_at_checked(3)?;
        let value = value.trim_ascii_start().strip_prefix(b"=")?;
        name.eq_ignore_ascii_case(b"for").then(|| address(value))?
    };
    // Addresses contain no semicolon, so quotes can be ignored: a pair that is split wrongly is not
    // an address.
    entry.split(|byte| *byte == b';').find_map(value_of_for)
}

/// Parses an address as proxies write it: with or without quotes, brackets, port and zone.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = unquoted(text.trim_ascii());
    if let Some(bracketed) = text.strip_prefix(b"[") {
        let end = bracketed.iter().position(|byte| *byte == b']')?;
        let (address, rest) = (&bracketed[..end], &bracketed[end + 1..]);
        return (rest.is_empty() || is_port(rest)).then(|| v6(address).map(IpAddr::V6))?;
    }
    match text.iter().position(|byte| *byte == b':') {
        // The only colon: a port.
        Some(colon) if !text[colon + 1..].contains(&b':') => {
            is_port(&text[colon..]).then(|| v4(&text[..colon]).map(IpAddr::V4))?
        }
        Some(_) => v6(text).map(IpAddr::V6),
        None => v4(text).map(IpAddr::V4),
    }
}

fn unquoted(text: &[u8]) -> &[u8] {
    let inside = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    inside.map_or(text, <[u8]>::trim_ascii)
}

/// Matches `:4711`, or an obfuscated port: `:_hidden`.
fn is_port(text: &[u8]) -> bool {
    matches!(text, [b':', port @ ..] if !port.is_empty()
        && port.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte)))
}

fn v4(text: &[u8]) -> Option<Ipv4Addr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Without its zone: the proxy's network link says nothing about the client.
fn v6(text: &[u8]) -> Option<Ipv6Addr> {
    let end = text.iter().position(|byte| *byte == b'%').unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &str) -> Vec<&str> {
        EntriesFromRight(Some(list.as_bytes())).map(|entry| std::str::from_utf8(entry).unwrap()).collect()
    }

    #[test]
    fn a_list_is_read_from_the_right() {
        assert_eq!(entries("a, b ,c"), ["c", "b", "a"]);
        assert_eq!(entries(""), [""]);
        assert_eq!(entries("a,"), ["", "a"]);
        assert_eq!(entries(r#"for="a, b";by=c, for=d"#), ["for=d", r#"for="a, b";by=c"#]);
        assert_eq!(entries(r#"for="a\", b", for=d"#), ["for=d", r#"for="a\", b""#]);
    }

    #[test]
    fn an_open_quote_on_the_left_does_not_reach_the_right() {
        for left in ["for=\"", "\"\"\"", "for=\"a\\", "\\", ",,,\"", "for=\"x\\\""] {
            let list = format!("{left}, for=\"[2001:db8::1]:80\", for=10.0.0.2");
            assert_eq!(entries(&list)[..2], ["for=10.0.0.2", "for=\"[2001:db8::1]:80\""], "{list}");
        }
    }

    #[test]
    fn an_invalid_address_is_rejected() {
        for text in [
            "",
            "unknown",
            "_hidden",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "1.2.3.4:",
            "1.2.3.4:80:90",
            "[1.2.3.4]",
            "[::1",
            "[::1]80",
            "::1]",
            "[::1]:",
            "1.2.3.4 5.6.7.8",
            "\"1.2.3.4",
            "1.2.3.4%eth0",
            ":::",
            "%eth0",
            "2001:db8::g",
        ] {
            assert_eq!(address(text.as_bytes()), None, "{text}");
        }
        assert_eq!(address(&[0xff, 0xfe]), None);
        for entry in [
            "",
            "by=1.2.3.4",
            "for",
            "for=",
            "form=1.2.3.4",
            "xfor=1.2.3.4",
            "proto=http",
            "for=_x;by=1.2.3.4",
        ] {
            assert_eq!(for_parameter(entry.as_bytes()), None, "{entry}");
        }
    }

    #[test]
    fn the_parameter_for_is_found_among_others_in_any_case() {
        for entry in [
            "for=1.2.3.4",
            "form=a;for=1.2.3.4",
            "For=1.2.3.4;proto=http",
            "by=9.9.9.9; FOR = \"1.2.3.4:80\" ;host=a",
        ] {
            assert_eq!(for_parameter(entry.as_bytes()), Some(Ipv4Addr::new(1, 2, 3, 4).into()), "{entry}");
        }
    }
}
