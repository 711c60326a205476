//! Whom an address belongs to: notations, networks, proxies, and clients who make things up.

use crate::support::{from, with};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use sluicegate::Key as _;
use sluicegate_tower::RequestHead;
use sluicegate_tower::key::{self, KeyExtractor, MissingKey};
use std::collections::HashSet;
use std::net::IpAddr;

fn key(extract: &impl KeyExtractor, request: &Request<Full<Bytes>>) -> Result<String, MissingKey> {
    let key = extract.extract(&RequestHead::of(request))?;
    let text = String::from_utf8(key.to_bytes().into_owned()).unwrap();
    Ok(text.strip_prefix("~a").and_then(|text| text.strip_suffix(';')).expect("an address").to_owned())
}

fn forwarded(lines: &[&str]) -> Request<Full<Bytes>> {
    lines.iter().fold(from("10.0.0.1"), |request, line| with(request, "x-forwarded-for", line))
}

#[test]
fn forty_notations_of_an_address_are_one_key() {
    let v4 = [
        "203.0.113.9",
        " 203.0.113.9 ",
        "203.0.113.9:80",
        "203.0.113.9:65535",
        "\"203.0.113.9\"",
        "\"203.0.113.9:80\"",
        "\" 203.0.113.9 \"",
        "203.0.113.9:_hidden",
        "::ffff:203.0.113.9",
        "::FFFF:203.0.113.9",
        "::ffff:cb00:7109",
        "::ffff:CB00:7109",
        "0:0:0:0:0:ffff:203.0.113.9",
        "0:0:0:0:0:ffff:cb00:7109",
        "0000:0000:0000:0000:0000:ffff:cb00:7109",
        "0::ffff:cb00:7109",
        "[::ffff:203.0.113.9]",
        "[::ffff:203.0.113.9]:443",
        "[::ffff:cb00:7109]:443",
        "\"[::ffff:cb00:7109]:443\"",
        "::ffff:203.0.113.9%eth0",
        "[::ffff:203.0.113.9%eth0]:443",
    ];
    let v6 = [
        "2001:db8:1:2::17",
        "2001:DB8:1:2::17",
        "2001:0db8:0001:0002::0017",
        "2001:0db8:0001:0002:0000:0000:0000:0017",
        "2001:db8:1:2:0:0:0:17",
        "2001:db8:1:2:0::17",
        "2001:db8:1:2::0:17",
        "2001:db8:1:2::0.0.0.23",
        "2001:db8:1:2:0:0:0.0.0.23",
        "[2001:db8:1:2::17]",
        "[2001:db8:1:2::17]:443",
        "\"[2001:db8:1:2::17]\"",
        "\"[2001:db8:1:2::17]:443\"",
        "\"2001:db8:1:2::17\"",
        "2001:db8:1:2::17%eth0",
        "[2001:db8:1:2::17%eth0]:443",
        "[2001:db8:1:2::17%25eth0]",
        "  2001:db8:1:2::17  ",
        "2001:Db8:1:2::17%1",
        "\"[2001:db8:1:2::17]:_port\"",
    ];
    assert!(v4.len() + v6.len() >= 40);
    let keys = |notations: &[&str], of: &dyn Fn(&str) -> Result<String, MissingKey>| -> HashSet<String> {
        notations.iter().map(|text| of(text).unwrap_or_else(|no| panic!("{text}: {no:?}"))).collect()
    };
    let x_forwarded_for = |text: &str| key(&key::forwarded_ip(1), &forwarded(&[text]));
    let rfc7239 = |text: &str| {
        let line = format!("for={text};proto=https");
        key(&key::forwarded_ip(1).rfc7239(), &with(from("10.0.0.1"), "forwarded", &line))
    };
    for of in [&x_forwarded_for as &dyn Fn(&str) -> _, &rfc7239] {
        assert_eq!(keys(&v4, of), HashSet::from(["203.0.113.9".to_owned()]));
        assert_eq!(keys(&v6, of), HashSet::from(["2001:db8:1:2::".to_owned()]));
    }
    let peer = |text: &str| key(&key::peer_ip(), &from(text));
    assert_eq!(
        keys(&["203.0.113.9", "::ffff:203.0.113.9"], &peer),
        HashSet::from(["203.0.113.9".to_owned()])
    );
}

#[test]
fn a_slash_64_is_one_key() {
    let mut random = fastrand::Rng::with_seed(7);
    let walk = |prefix: u8, random: &mut fastrand::Rng| -> HashSet<String> {
        let network = 0x2001_0db8_0001_0002_u128 << 64;
        let hosts = (0..10_000).map(|_| random.u128(..) >> prefix);
        let addresses = hosts.map(|host| IpAddr::from((network | host).to_be_bytes()));
        addresses.map(|address| key(&key::peer_ip(), &from(&address.to_string())).unwrap()).collect()
    };
    assert_eq!(walk(64, &mut random).len(), 1);
    assert_eq!(walk(63, &mut random).len(), 2, "a /63 is two of them");
    let of = |prefix, address: &str| key(&key::peer_ip().ipv6_prefix(prefix), &from(address)).unwrap();
    assert_ne!(of(64, "2001:db8:1:2::1"), of(64, "2001:db8:1:3::1"));
    assert_eq!(of(56, "2001:db8:1:2::1"), of(56, "2001:db8:1:ff::1"));
    assert_ne!(of(56, "2001:db8:1:2::1"), of(56, "2001:db8:1:102::1"));
    assert_eq!(of(48, "2001:db8:1:2::1"), of(48, "2001:db8:1:ffff::1"));
    assert_ne!(of(128, "2001:db8:1:2::1"), of(128, "2001:db8:1:2::2"));
    assert_ne!(of(64, "203.0.113.9"), of(64, "203.0.113.10"), "addresses of IPv4 are single ones");
}

#[test]
fn without_a_proxy_the_header_is_ignored() {
    let made_up = with(forwarded(&["1.1.1.1"]), "forwarded", "for=1.1.1.1");
    for by in [key::forwarded_ip(0), key::forwarded_ip(0).rfc7239()] {
        assert_eq!(key(&by, &made_up).unwrap(), "10.0.0.1");
    }
    assert_eq!(key(&key::peer_ip(), &made_up).unwrap(), "10.0.0.1");
}

#[test]
fn entries_are_counted_from_the_right_over_all_lines() {
    let request = forwarded(&["1.1.1.1, 2.2.2.2", "3.3.3.3", " 4.4.4.4,5.5.5.5 "]);
    let of = |hops| key(&key::forwarded_ip(hops), &request).unwrap();
    assert_eq!([1, 2, 3, 4, 5].map(of), ["5.5.5.5", "4.4.4.4", "3.3.3.3", "2.2.2.2", "1.1.1.1"]);
    assert_eq!(of(6), "1.1.1.1", "fewer entries than proxies: one of them wrote the first");
    assert_eq!(of(usize::MAX), "1.1.1.1");
    assert_eq!(key(&key::forwarded_ip(2), &from("10.0.0.1")).unwrap(), "10.0.0.1", "no proxy in between");
}

#[test]
fn an_entry_that_is_not_an_address_is_no_key() {
    for entry in ["unknown", "_gazonk", "", "1.1.1.1, ", "garbage garbage", "1.1.1.1;2.2.2.2"] {
        assert_eq!(key(&key::forwarded_ip(1), &forwarded(&[entry])), Err(MissingKey::Absent), "{entry}");
    }
}

#[test]
fn only_the_configured_field_counts() {
    let both = with(forwarded(&["5.5.5.5"]), "forwarded", "for=6.6.6.6");
    assert_eq!(key(&key::forwarded_ip(1), &both).unwrap(), "5.5.5.5");
    assert_eq!(key(&key::forwarded_ip(1).rfc7239(), &both).unwrap(), "6.6.6.6");
}

/// What a client may send: separators, quotes, escapes and addresses in any order, over several
/// lines.
fn made_up(random: &mut fastrand::Rng) -> Vec<String> {
    const PIECES: [&str; 20] = [
        ",",
        ", ",
        "\"",
        "\\",
        ";",
        "=",
        "for=",
        "by=",
        "for=\"",
        "[",
        "]",
        ":",
        "%",
        " ",
        "1.1.1.1",
        "::1",
        "unknown",
        "8.8.8.8:80",
        "[2001:db8::5]",
        "\t",
    ];
    let line = |random: &mut fastrand::Rng| -> String {
        (0..random.usize(..12)).map(|_| PIECES[random.usize(..PIECES.len())]).collect()
    };
    (0..random.usize(..4)).map(|_| line(random)).collect()
}

/// The key never depends on what is left of the trusted hops.
#[test]
fn a_client_cannot_forge_its_key() {
    let mut random = fastrand::Rng::with_seed(62);
    for round in 0..100_000 {
        let hops = random.usize(1..=2);
        let rfc7239 = random.bool();
        let (name, by) = if rfc7239 {
            ("forwarded", key::forwarded_ip(hops).rfc7239())
        } else {
            ("x-forwarded-for", key::forwarded_ip(hops))
        };
        let mut lines = made_up(&mut random);
        // What our proxies append: to the last line, or as a line of its own.
        for address in ["198.51.100.7", "10.0.0.2"].into_iter().take(hops) {
            let entry = match (rfc7239, random.bool()) {
                (false, false) => address.to_owned(),
                (false, true) => format!("{address}:4711"),
                (true, false) => format!("for={address};proto=https"),
                (true, true) => format!("by=\"[::1]:80\";for=\"{address}:4711\""),
            };
            match lines.last_mut() {
                Some(last) if random.bool() => *last += &format!(",{}{entry}", [" ", ""][random.usize(..2)]),
                _ => lines.push(entry),
            }
        }
        let request = lines.iter().fold(from("10.0.0.1"), |request, line| with(request, name, line));
        assert_eq!(key(&by, &request).as_deref(), Ok("198.51.100.7"), "round {round}: {lines:?}");
    }
}
