//! Common and combined logs, as Apache and nginx write them.
//!
//! `ip ident user [10/Oct/2026:13:55:36 -0700] "GET /path HTTP/1.1" 200 2326`, and in a combined
//! log ` "referer" "agent"` behind that. Whatever follows is ignored. Debian's `vhost_combined` has
//! `vhost:port ` in front. Values are taken as they are written, escapes included.

use super::moment::Moments;
use super::{Fields, Format, Problem, Row, cost};
use crate::traffic::TrafficError;
use crate::values::shown;
use memchr::{memchr, memchr_iter, memchr2, memrchr};
use std::net::IpAddr;

/// The fields by name. What only a combined log has comes last.
const FIELDS: [(&str, Field); 14] = [
    ("ip", Field::Ip),
    ("vhost", Field::Vhost),
    ("ident", Field::Ident),
    ("user", Field::User),
    ("time", Field::Time),
    ("request", Field::Request),
    ("method", Field::Method),
    ("path", Field::Path),
    ("url", Field::Url),
    ("protocol", Field::Protocol),
    ("status", Field::Status),
    ("bytes", Field::Bytes),
    ("referer", Field::Referer),
    ("agent", Field::Agent),
];
/// Other names of the ip.
const IP_ALIASES: [&str; 2] = ["host", "remote_addr"];

/// What is missing from a line in which no time can be found.
const TIME: &str = "time in [ ]";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Ip,
    /// Without its port.
    Vhost,
    Ident,
    User,
    Time,
    Request,
    Method,
    /// Without what follows a `?`.
    Path,
    /// With it.
    Url,
    Protocol,
    Status,
    Bytes,
    Referer,
    Agent,
}

/// Reads lines.
#[derive(Debug)]
pub(super) struct Common {
    is_combined: bool,
    keys: Vec<Field>,
    cost: Option<(String, Field)>,
    moments: Moments,
}

/// The pieces of a line.
#[derive(Clone, Copy, Debug)]
struct Parts<'a> {
    vhost: Option<&'a [u8]>,
    ip: &'a [u8],
    ident: &'a [u8],
    user: &'a [u8],
    time: &'a [u8],
    request: &'a [u8],
    status: &'a [u8],
    bytes: &'a [u8],
    referer: &'a [u8],
    agent: &'a [u8],
}

impl Common {
    /// Reads these fields. One that the format does not have is said at once.
    pub(super) fn new(format: Format, fields: &Fields) -> Result<Common, TrafficError> {
        let keys = fields.key.iter().map(|name| field(format, name)).collect::<Result<_, _>>()?;
        let cost = match &fields.cost {
            Some(name) => Some((name.clone(), field(format, name)?)),
            None => None,
        };
        if let Some(time) = fields.time.as_deref().filter(|name| *name != "time") {
            let why =
                format!("a {format} log has its time in the field time, not in {}", shown(time.as_bytes()));
            return Err(TrafficError::Field(format!("{why}; leave --time out")));
        }
        Ok(Common { is_combined: format == Format::Combined, keys, cost, moments: Moments::default() })
    }

    /// Returns `true` if this is a line of such a log.
    pub(super) fn recognises(format: Format, line: &[u8]) -> bool {
        let parts = parts(line, format == Format::Combined);
        parts.is_ok_and(|parts| Moments::default().read(parts.time).is_ok())
    }

    /// Puts what is asked for into `row`.
    pub(super) fn read(&mut self, line: &[u8], row: &mut Row) -> Result<(), Problem> {
        let parts = parts(line, self.is_combined)?;
        row.at = self.moments.read(parts.time)?;
        for key in &self.keys {
            row.add_key(parts.field(*key)?);
        }
        if let Some((name, field)) = &self.cost {
            row.cost = cost(name, parts.field(*field)?)?;
        }
        Ok(())
    }
}

/// The field of that name.
fn field(format: Format, name: &str) -> Result<Field, TrafficError> {
    let name = if IP_ALIASES.contains(&name) { "ip" } else { name };
    let only_combined = |field: Field| matches!(field, Field::Referer | Field::Agent);
    let mut known = FIELDS.iter().filter(|(_, field)| format == Format::Combined || !only_combined(*field));
    if let Some((_, field)) = known.clone().find(|(known, _)| *known == name) {
        return Ok(*field);
    }
    let first = known.next().map_or("", |(name, _)| name).to_owned();
    let known = known.fold(first, |list, (name, _)| list + ", " + name);
    let why = format!("a {format} log has no field {}; use one of {known}", shown(name.as_bytes()));
    Err(TrafficError::Field(why))
}

impl<'a> Parts<'a> {
    fn field(&self, field: Field) -> Result<&'a [u8], Problem> {
        let (value, missing) = match field {
            Field::Ip => (Some(self.ip), ""),
            Field::Vhost => (self.vhost, "vhost"),
            Field::Ident => (Some(self.ident), ""),
            Field::User => (Some(self.user), ""),
            Field::Time => (Some(self.time), ""),
            Field::Request => (Some(self.request), ""),
            Field::Method => (method(self.request), "method"),
            Field::Path => (url(self.request).and_then(|url| url.split(|byte| *byte == b'?').next()), "path"),
            Field::Url => (url(self.request), "url"),
            Field::Protocol => (protocol(self.request), "protocol"),
            Field::Status => (Some(self.status), ""),
            Field::Bytes => (Some(self.bytes), ""),
            Field::Referer => (Some(self.referer), ""),
            Field::Agent => (Some(self.agent), ""),
        };
        value.ok_or_else(|| {
            let what = match field {
                Field::Vhost => format!("there is no vhost before the ip {}", shown(self.ip)),
                _ => format!("there is no {missing} in the request {}", shown(self.request)),
            };
            Problem { what, advice: "choose another field, or leave such lines out" }
        })
    }
}

/// Takes a line apart.
fn parts(line: &[u8], is_combined: bool) -> Result<Parts<'_>, Problem> {
    let bad = |what: &str| Problem {
        what: format!("there is no {what} in {}", shown(line)),
        advice: "write ip ident user [10/Oct/2026:13:55:36 -0700] \"GET / HTTP/1.1\" 200 2326",
    };
    let [head, time, rest] = around_time(line).map_err(bad)?;
    let (vhost, ip, ident, user) = who(head).ok_or_else(|| bad("ip, ident and user before the time"))?;
    let (request, rest) = quoted(rest).ok_or_else(|| bad("closing quote after the request"))?;
    let (status, rest) = count(rest).ok_or_else(|| bad("status after the request"))?;
    let (bytes, rest) = count(rest).ok_or_else(|| bad("number of bytes after the status"))?;
    let (mut referer, mut agent) = (&[][..], &[][..]);
    if is_combined {
        let both = rest.strip_prefix(b" \"").and_then(quoted).and_then(|(referer, rest)| {
            let agent = rest.strip_prefix(b" \"").and_then(quoted)?.0;
            Some((referer, agent))
        });
        (referer, agent) = both.ok_or_else(|| Problem {
            advice: "write \"referer\" \"agent\" behind the number of bytes, or use --format common",
            ..bad("referer and agent in quotes")
        })?;
    }
    Ok(Parts { vhost, ip, ident, user, time, request, status, bytes, referer, agent })
}

/// What is before the time, the time, and what follows the quote that opens the request.
///
/// It is looked for from the quote backwards: what the caller made up, the user, may have brackets
/// but no bare quote.
fn around_time(line: &[u8]) -> Result<[&[u8]; 3], &'static str> {
    for quote in memchr_iter(b'"', line) {
        let (before, request) = line.split_at_checked(quote).unwrap_or_default();
        let Some(before) = before.strip_suffix(b"] ") else { continue };
        let (head, time) =
            memrchr(b'[', before).and_then(|place| before.split_at_checked(place)).ok_or(TIME)?;
        let head = head.strip_suffix(b" ").ok_or(TIME)?;
        return Ok([head, time.get(1..).unwrap_or_default(), request.get(1..).unwrap_or_default()]);
    }
    let has_time = memchr(b'[', line).is_some_and(|place| memchr(b']', line).is_some_and(|end| end > place));
    Err(if has_time { "request in quotes after the time" } else { TIME })
}

/// The vhost if there is one, ip, ident and user. Only the user may have spaces.
type Who<'a> = (Option<&'a [u8]>, &'a [u8], &'a [u8], &'a [u8]);

fn who(head: &[u8]) -> Option<Who<'_>> {
    let (first, rest) = word(head)?;
    let (second, third) = word(rest)?;
    if let Some((ident, user)) = word(third).filter(|_| is_ip(second)) {
        return Some((Some(without_port(first)), second, ident, user));
    }
    (!first.is_empty()).then_some((None, first, second, third))
}

/// What is before the first space and what is after it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (word, rest) = text.split_at_checked(memchr(b' ', text)?)?;
    Some((word, rest.get(1..)?))
}

fn is_ip(text: &[u8]) -> bool {
    // Most are a dash, and need no more than a glance.
    text.len() > 1 && std::str::from_utf8(text).is_ok_and(|text| text.parse::<IpAddr>().is_ok())
}

fn without_port(vhost: &[u8]) -> &[u8] {
    let port = memrchr(b':', vhost).and_then(|colon| vhost.split_at_checked(colon));
    port.filter(|(_, port)| port.iter().skip(1).all(u8::is_ascii_digit)).map_or(vhost, |(name, _)| name)
}

/// Up to the closing quote, and what follows it. A backslash takes away the meaning of what it
/// precedes.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let place = from + memchr2(b'"', b'\\', text.get(from..)?)?;
        if text.get(place) == Some(&b'"') {
            return Some((text.get(..place)?, text.get(place + 1..)?));
        }
        from = place + 2;
    }
}

/// A space and digits or a dash, and what follows.
fn count(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b" ")?;
    let length = text.iter().take_while(|byte| **byte != b' ').count();
    let (count, rest) = text.split_at_checked(length)?;
    let is_count = count == b"-" || (!count.is_empty() && count.iter().all(u8::is_ascii_digit));
    is_count.then_some((count, rest))
}

/// The first word of a request. It may be missing, like the others: what comes in from outside need
/// not be a request.
fn method(request: &[u8]) -> Option<&[u8]> {
    word(request).map(|(method, _)| method)
}

/// What is between the method and the protocol, which may have spaces, or all behind the method.
fn url(request: &[u8]) -> Option<&[u8]> {
    let (_, rest) = word(request)?;
    rest.get(..memrchr(b' ', rest).unwrap_or(rest.len()))
}

/// The last word, if there are at least three.
fn protocol(request: &[u8]) -> Option<&[u8]> {
    let (_, rest) = word(request)?;
    rest.get(memrchr(b' ', rest)? + 1..)
}
