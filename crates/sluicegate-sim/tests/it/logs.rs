//! Access logs as traffic: what is read from each format, and what is said about what cannot be.

use sluicegate_sim::Traffic;
use sluicegate_sim::trace::KEY_LEN_MAX;
use sluicegate_sim::traffic::log::{Fields, Format, IP_FIELDS, LINE_LEN_MAX, TIME_FIELDS, read};
use sluicegate_sim::traffic::{Clock, Reading, TrafficError};
use std::fmt::Write as _;
use std::io::{self, Read};

const COMMON: &str =
    r#"203.0.113.9 - frank [10/Oct/2026:13:55:36 -0700] "GET /a/b?c=d&e=f HTTP/1.1" 200 2326"#;
const COMBINED: &str = r#"203.0.113.9 - frank [10/Oct/2026:13:55:36 -0700] "GET /a/b?c=d&e=f HTTP/1.1" 200 2326 "https://example.com/" "Mozilla/5.0 (X11; Linux x86_64)""#;
/// 2026-10-10T20:55:36Z, which is 13:55:36 -0700.
const AT: u64 = 1_791_665_736_000_000;

const STRICT: Reading = Reading { strict: true, calls_max: 1_000_000 };
const HOW: &str = r#"write ip ident user [10/Oct/2026:13:55:36 -0700] "GET / HTTP/1.1" 200 2326"#;

fn traffic(log: impl AsRef<[u8]>, format: Option<Format>, key: &str) -> Traffic {
    read(log.as_ref(), format, &Fields::new(key, None, None), STRICT).unwrap()
}

/// Time, key and cost of each call.
fn calls(traffic: &Traffic) -> Vec<(u64, String, u64)> {
    let text = |key| String::from_utf8_lossy(traffic.key(key)).into_owned();
    traffic.calls().iter().map(|call| (call.at.as_micros(), text(call.key), call.cost)).collect()
}

/// The key of the only line.
fn key(line: impl AsRef<[u8]>, format: Format, key: &str) -> String {
    let calls = calls(&traffic(line, Some(format), key));
    assert_eq!(calls.len(), 1);
    calls[0].1.clone()
}

/// The time of a JSON line with that time.
fn at(time: &str) -> u64 {
    calls(&traffic(format!(r#"{{"ip":"a","time":{time}}}"#), Some(Format::Json), "ip"))[0].0
}

fn refused(log: impl AsRef<[u8]>, format: Option<Format>, fields: &Fields) -> String {
    read(log.as_ref(), format, fields, STRICT).unwrap_err().to_string()
}

/// Hands out one byte at a time.
pub(crate) struct OneByte<'a>(pub(crate) &'a [u8]);

impl Read for OneByte<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
        buffer[0] = *first;
        self.0 = rest;
        Ok(1)
    }
}

#[test]
fn every_field_of_a_combined_line_can_be_the_key() {
    for (field, value) in [
        ("ip", "203.0.113.9"),
        ("host", "203.0.113.9"),
        ("remote_addr", "203.0.113.9"),
        ("ident", "-"),
        ("user", "frank"),
        ("time", "10/Oct/2026:13:55:36 -0700"),
        ("request", "GET /a/b?c=d&e=f HTTP/1.1"),
        ("method", "GET"),
        ("path", "/a/b"),
        ("url", "/a/b?c=d&e=f"),
        ("protocol", "HTTP/1.1"),
        ("status", "200"),
        ("bytes", "2326"),
        ("ip,path", "203.0.113.9 /a/b"),
        ("user, method ,ident", "frank GET -"),
    ] {
        assert_eq!(key(COMBINED, Format::Combined, field), value, "{field}");
        // A common log may go on.
        assert_eq!(key(COMBINED, Format::Common, field), value, "{field}");
        assert_eq!(key(COMMON, Format::Common, field), value, "{field}");
    }
    assert_eq!(key(COMBINED, Format::Combined, "referer"), "https://example.com/");
    assert_eq!(key(COMBINED, Format::Combined, "agent"), "Mozilla/5.0 (X11; Linux x86_64)");
    assert_eq!(key(format!("{COMBINED} 0.012 \"-\" x"), Format::Combined, "ip"), "203.0.113.9");
}

#[test]
fn a_line_is_a_call_of_cost_1_at_its_time() {
    let traffic = traffic(COMMON, Some(Format::Common), "ip");
    assert_eq!(calls(&traffic), [(AT, "203.0.113.9".to_owned(), 1)]);
    assert_eq!(traffic.clock(), Clock::Utc);
}

#[test]
fn a_vhost_may_stand_in_front() {
    let line =
        r#"shop.example.com:443 2001:db8::1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/2.0" 200 5 "-" "-""#;
    assert_eq!(key(line, Format::Combined, "vhost,ip,ident,user"), "shop.example.com 2001:db8::1 - -");
    let line = line.replace(":443 ", " ");
    assert_eq!(key(&line, Format::Combined, "vhost,ip"), "shop.example.com 2001:db8::1");
    assert_eq!(
        refused(COMMON, Some(Format::Common), &Fields::new("vhost", None, None)),
        r#"line 1: there is no vhost before the ip "203.0.113.9"; choose another field, or leave such lines out"#
    );
}

#[test]
fn lines_as_servers_write_them() {
    let key = |line: &str, name| key(line, Format::Common, name);
    let line = r#"2001:db8::ff - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 304 -"#;
    assert_eq!(key(line, "ip"), "2001:db8::ff");
    let line = r#"::1 - Ann van  Dam [x] [01/Jan/2026:00:00:00 +0000] "GET /a b c HTTP/1.1" 304 -"#;
    assert_eq!(key(line, "user"), "Ann van  Dam [x]");
    assert_eq!(key(line, "url"), "/a b c");
    // Apache writes an empty user like this, and nginx nothing.
    let line = r#"::1 - "" [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 401 0"#;
    assert_eq!(key(line, "user"), r#""""#);
    let line = r#"::1 -  [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 401 0"#;
    assert_eq!(key(line, "user"), "");
    let line = r#"::1 - - [01/Jan/2026:00:00:00 +0000] "GET /\"x\\\" HTTP/1.1" 200 0"#;
    assert_eq!(key(line, "path"), r#"/\"x\\\""#);
    let line = r#"::1 - - [01/Jan/2026:00:00:00 +0000] "GET /" - 0"#;
    assert_eq!(key(line, "method,path,status"), "GET / -");
    // A handshake that came to the wrong port is not a request, but a call.
    let line = r#"::1 - - [01/Jan/2026:00:00:00 +0000] "\x16\x03\x01" 400 166"#;
    assert_eq!(key(line, "request"), r"\x16\x03\x01");
    assert_eq!(
        refused(line, Some(Format::Common), &Fields::new("path", None, None)),
        r#"line 1: there is no path in the request "\\x16\\x03\\x01"; choose another field, or leave such lines out"#
    );
}

#[test]
fn an_agent_may_have_quotes_and_bytes_of_any_kind() {
    let mut line = br#"::1 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 0 "a \"b\" c" ""#.to_vec();
    line.extend_from_slice(b"\xff\xfe\\\"\"");
    let traffic = traffic(&line, None, "referer,agent");
    assert_eq!(traffic.key(0), b"a \\\"b\\\" c \xff\xfe\\\"");
}

#[test]
fn times_of_common_logs_know_offsets() {
    for (time, micros) in [
        ("10/Oct/2026:13:55:36 -0700", AT),
        ("10/Oct/2026:20:55:36 +0000", AT),
        ("11/Oct/2026:02:25:36 +0530", AT),
        ("10/Oct/2026:20:55:36", AT),
        ("10/Oct/2026:20:55:36.25 +0000", AT + 250_000),
        ("2026-10-10T22:55:36+02:00", AT),
        ("1791665736.001", AT + 1_000),
        ("01/Jan/1970:00:00:00 +0000", 0),
        ("29/Feb/2024:00:00:00 +0000", 1_709_164_800_000_000),
    ] {
        let line = COMMON.replace("10/Oct/2026:13:55:36 -0700", time);
        assert_eq!(calls(&traffic(line, None, "ip"))[0].0, micros, "{time}");
    }
}

#[test]
fn times_of_json_are_text_or_numbers_in_four_units() {
    for (time, micros) in [
        (r#""2026-10-10T20:55:36Z""#, AT),
        (r#""2026-10-10t20:55:36z""#, AT),
        (r#""2026-10-10 22:55:36+02:00""#, AT),
        (r#""2026-10-10T20:55:36""#, AT),
        (r#""2026-10-10 20:55:36,5""#, AT + 500_000),
        (r#""2026-10-10T22:55:36.123456789+0200""#, AT + 123_456),
        (r#""2026-10-10T13:55:36 -07""#, AT),
        (r#""2016-12-31T23:59:60Z""#, 1_483_228_799_000_000),
        (r#""10\/Oct\/2026:13:55:36 -0700""#, AT),
        ("1791665736", AT),
        (r#""1791665736.5""#, AT + 500_000),
        ("1699999999.123456", 1_699_999_999_123_456),
        ("1699999999.1234569", 1_699_999_999_123_456),
        ("1.699999999123456e9", 1_699_999_999_123_456),
        ("1699999999123456E-6", 1_699_999_999_123_456),
        ("1699999999123", 1_699_999_999_123_000),
        ("1699999999123.456", 1_699_999_999_123_456),
        ("1699999999123456", 1_699_999_999_123_456),
        ("1699999999123456.9", 1_699_999_999_123_456),
        ("1699999999123456789", 1_699_999_999_123_456),
        // Where a unit ends and the next begins.
        ("99999999999.999999", 99_999_999_999_999_999),
        ("100000000000", 100_000_000_000_000),
        ("99999999999999.999", 99_999_999_999_999_999),
        ("100000000000000", 100_000_000_000_000),
        ("99999999999999999", 99_999_999_999_999_999),
        ("100000000000000000", 100_000_000_000_000),
        ("250000000000000000000", 250_000_000_000_000_000),
        ("0", 0),
        ("0.0000000000000000000000000000000000000000001", 0),
    ] {
        assert_eq!(at(time), micros, "{time}");
    }
}

#[test]
fn a_time_that_is_none_is_said() {
    let no_time = "is in no form that is known; use 2026-10-10T13:55:36Z, 10/Oct/2026:13:55:36 +0000 or seconds since 1970";
    let early = "is before 1970; leave the line out, or correct the clock that wrote it";
    let late = "is after the year 9891; use seconds, or whole milli-, micro- or nanoseconds";
    for (time, said) in [
        (r#""""#, no_time),
        (r#""-""#, no_time),
        (r#"".""#, no_time),
        (r#""noon""#, no_time),
        (r#""2026-10-10""#, no_time),
        (r#""2026-13-10T00:00:00Z""#, no_time),
        (r#""2026-02-29T00:00:00Z""#, no_time),
        (r#""2026-10-10T24:00:00Z""#, no_time),
        (r#""2026-10-10T20:55:36+25:00""#, no_time),
        (r#""2026-10-10T20:55:36.Z""#, no_time),
        (r#""2026-10-10T20:55:36 UTC""#, no_time),
        (r#""10/Okt/2026:13:55:36 -0700""#, no_time),
        (r#""1.2.3""#, no_time),
        ("true", no_time),
        ("-1", early),
        ("-0.5", early),
        (r#""1969-12-31T23:59:59Z""#, early),
        (r#""1970-01-01T00:00:00+00:01""#, early),
        (r#""9999-01-01T00:00:00Z""#, late),
        ("250000000000000001000", late),
        ("1e300", late),
    ] {
        let line = format!(r#"{{"ip":"a","time":{time}}}"#);
        let shown = time.trim_matches('"');
        assert_eq!(
            refused(line, Some(Format::Json), &Fields::new("ip", None, None)),
            format!("line 1: the time \"{shown}\" {said}")
        );
    }
}

#[test]
fn json_fields_are_whole_names_first_and_paths_then() {
    let line = r#"{"ts":1, "a.b":"whole", "a":{"b":"path","c":{"d":7.50}}, "t":true, "e":"\u00e9\n\"", "d":1, "d":2}"#;
    for (field, value) in [
        ("a.b", "whole"),
        ("a.c.d", "7.50"),
        ("t", "true"),
        ("e", "\u{e9}\n\""),
        ("d", "2"),
        ("a.b,t", "whole true"),
        ("d,d", "2 2"),
    ] {
        assert_eq!(key(line, Format::Json, field), value, "{field}");
    }
    // The last one of several counts, also on the way to a value.
    let line = r#"{"ts":1,"a":{"b":1},"\u0061":{"b":2,"b":3}}"#;
    assert_eq!(key(line, Format::Json, "a.b"), "3");
    let line = r#"{"ts":1,"a":{"b":1},"a":5}"#;
    let fields = Fields::new("a.b", None, None);
    assert!(refused(line, Some(Format::Json), &fields).starts_with(r#"line 1: there is no field "a.b"; "#));
}

#[test]
fn the_ip_and_the_time_of_json_are_found_under_their_usual_names() {
    for (place, name) in IP_FIELDS.iter().enumerate() {
        // Those before it win, those after it do not.
        let all: String = IP_FIELDS[place..].iter().rev().fold(String::new(), |mut all, name| {
            let _ = write!(all, r#""{name}":"{name}","#);
            all
        });
        assert_eq!(key(format!("{{{all}\"ts\":1}}"), Format::Json, "ip"), *name);
    }
    let caddy = r#"{"level":"info","ts":1791665736.5,"request":{"remote_ip":"::1","headers":{"A":["b"]}},"status":200}"#;
    assert_eq!(calls(&traffic(caddy, None, "ip")), [(AT + 500_000, "::1".to_owned(), 1)]);
    for (place, name) in TIME_FIELDS.iter().enumerate() {
        let all = (place..TIME_FIELDS.len()).rev().fold(String::new(), |mut all, place| {
            let _ = write!(all, r#""{}":{place},"#, TIME_FIELDS[place]);
            all
        });
        let traffic = traffic(format!("{{{all}\"ip\":1}}"), None, "ip");
        assert_eq!(calls(&traffic)[0].0, place as u64 * 1_000_000, "{name}");
    }
    let fields = Fields::new("who.id", Some("when.ms"), Some("n"));
    let line = r#"{"time":"x","when":{"ms":1791665736001},"who":{"id":12},"n":"30"}"#;
    let traffic = read(line.as_bytes(), None, &fields, STRICT).unwrap();
    assert_eq!(calls(&traffic), [(AT + 1_000, "12".to_owned(), 30)]);
}

#[test]
fn a_json_line_that_is_no_call_is_said() {
    let fields = Fields::new("k", None, Some("n"));
    let on_key = "name a field that every line has with --key";
    let on_cost = "name a field with a whole number with --cost";
    let on_time = "name the field that has it with --time";
    let one = "write one object a line";
    let cost = "use a field with whole numbers from 0 to 1000000000000";
    for (line, said) in [
        (r#"{"ts":1,"n":1}"#, format!(r#"there is no field "k"; {on_key}"#)),
        (r#"{"ts":1,"k":null,"n":1}"#, format!(r#"the field "k" is null; {on_key}"#)),
        (r#"{"ts":1,"k":[1],"n":1}"#, format!(r#"the field "k" is an array; {on_key}"#)),
        (r#"{"ts":1,"k":{"a":1},"n":1}"#, format!(r#"the field "k" is an object; {on_key}"#)),
        (
            r#"{"ts":1,"k":"\ud800","n":1}"#,
            format!(r#"the field "k" is a text with half a character; {on_key}"#),
        ),
        (r#"{"ts":1,"k":1}"#, format!(r#"there is no field "n"; {on_cost}"#)),
        (r#"{"ts":1,"k":1,"n":null}"#, format!(r#"the field "n" is null; {on_cost}"#)),
        (r#"{"ts":1,"k":1,"n":1.5}"#, format!(r#"cost "1.5" is not a whole number; {cost}"#)),
        (r#"{"ts":1,"k":1,"n":-1}"#, format!(r#"cost "-1" is not a whole number; {cost}"#)),
        (
            r#"{"ts":1,"k":1,"n":1000000000001}"#,
            format!(r#"cost "1000000000001" is above the maximum, 1000000000000; {cost}"#),
        ),
        (
            r#"{"k":1,"n":1}"#,
            format!("there is no field with the time, such as time, ts or timestamp; {on_time}"),
        ),
        (r#"{"ts":[],"k":1,"n":1}"#, format!("the field with the time is an array; {on_time}")),
        ("[1]", format!(r#"there is no JSON object in "[1]"; {one}"#)),
        ("plain", format!(r#"there is no JSON object in "plain"; {one}"#)),
        (r#"{"k":1"#, format!(r#"the JSON is broken at byte 6 in "{{\"k\":1"; {one}"#)),
        (r#"{"k":1} x"#, format!(r#"the JSON is broken at byte 9 in "{{\"k\":1}} x"; {one}"#)),
    ] {
        assert_eq!(refused(line, Some(Format::Json), &fields), format!("line 1: {said}"), "{line}");
    }
    assert_eq!(
        refused(b"{\"a\":\"\xff\"}", Some(Format::Json), &fields),
        r#"line 1: byte 7 is not UTF-8 in "{\"a\":\"\xff\"}"; write JSON in UTF-8"#
    );
    assert_eq!(
        refused(r#"{"ts":1}"#, Some(Format::Json), &Fields::new("ip", None, None)),
        format!(
            r#"line 1: there is no field "ip", remote_addr or another that is known to have it; {on_key}"#
        )
    );
    assert_eq!(
        refused(r#"{"ts":1,"k":1}"#, Some(Format::Json), &Fields::new("k", Some("when"), None)),
        format!(r#"line 1: there is no field "when"; {on_time}"#)
    );
}

#[test]
fn objects_within_objects_do_not_exhaust_the_stack() {
    for nested in ["[".repeat(30_000), r#"{"a":"#.repeat(10_000)] {
        let line = format!(r#"{{"ts":1,"k":{nested}"#);
        let fields = Fields::new("k.a.a", None, None);
        let said = refused(line, Some(Format::Json), &fields);
        assert!(said.starts_with("line 1: the JSON is broken at byte "), "{said}");
    }
}

#[test]
fn a_common_line_that_is_no_call_is_said() {
    for (line, what) in [
        ("foo bar", "time in [ ]"),
        (r#"foo] "bar"#, "time in [ ]"),
        (r"::1 - - [10/Oct/2026:13:55:36 -0700]", "request in quotes after the time"),
        (r#"::1 - [1] "GET / HTTP/1.1" 200 1"#, "ip, ident and user before the time"),
        (r#"::1 - - [1] "GET / HTTP/1.1 200 1"#, "closing quote after the request"),
        (r#"::1 - - [1] "GET /" x 1"#, "status after the request"),
        (r#"::1 - - [1] "GET /"200 1"#, "status after the request"),
        (r#"::1 - - [1] "GET /" 200"#, "number of bytes after the status"),
        (r#"::1 - - [1] "GET /" 200 1.5"#, "number of bytes after the status"),
    ] {
        let shown = line.replace('"', "\\\"");
        assert_eq!(
            refused(line, Some(Format::Common), &Fields::new("ip", None, None)),
            format!("line 1: there is no {what} in \"{shown}\"; {HOW}"),
        );
    }
    let said = refused(COMMON, Some(Format::Combined), &Fields::new("ip", None, None));
    assert_eq!(
        said,
        "line 1: there is no referer and agent in quotes in \"203.0.113.9 - frank [10/Oct/2026:13:55:3…\"; \
         write \"referer\" \"agent\" behind the number of bytes, or use --format common"
    );
}

#[test]
fn a_field_that_the_format_does_not_have_is_said_before_anything_is_read() {
    let common = "ip, vhost, ident, user, time, request, method, path, url, protocol, status, bytes";
    let refused = |format, key, time, cost| {
        let error = read(&b"not a log"[..], Some(format), &Fields::new(key, time, cost), STRICT).unwrap_err();
        assert!(matches!(error, TrafficError::Field(_)));
        error.to_string()
    };
    assert_eq!(
        refused(Format::Common, "agent", None, None),
        format!(r#"a common log has no field "agent"; use one of {common}"#)
    );
    assert_eq!(
        refused(Format::Combined, "ip,ipp", None, None),
        format!(r#"a combined log has no field "ipp"; use one of {common}, referer, agent"#)
    );
    assert_eq!(
        refused(Format::Common, "ip", None, Some("size")),
        format!(r#"a common log has no field "size"; use one of {common}"#)
    );
    assert_eq!(
        refused(Format::Common, "ip", Some("ts"), None),
        r#"a common log has its time in the field time, not in "ts"; leave --time out"#
    );
    for key in ["", "ip,", " , "] {
        assert_eq!(
            refused(Format::Json, key, None, None),
            "a field without a name is asked for; write names such as ip, or ip,path for a key of two"
        );
    }
    // When the format is found out, that is as soon as it is known.
    let error = read(COMMON.as_bytes(), None, &Fields::new("agent", None, None), Reading::default());
    assert!(matches!(error, Err(TrafficError::Field(_))));
}

#[test]
fn the_cost_may_be_the_number_of_bytes() {
    let log = format!("{COMMON}\n{}\n", COMMON.replace("2326", "-"));
    let fields = Fields::new("ip", Some("time"), Some("bytes"));
    let traffic = read(log.as_bytes(), None, &fields, STRICT).unwrap();
    assert_eq!(traffic.calls().iter().map(|call| call.cost).collect::<Vec<_>>(), [2326, 0]);
    let log = COMMON.replace("2326", "1000000000001");
    assert_eq!(
        refused(log, None, &fields),
        "line 1: cost \"1000000000001\" is above the maximum, 1000000000000; use a field with whole numbers from 0 to 1000000000000"
    );
}

#[test]
fn names_of_formats() {
    for (name, format) in [("common", Format::Common), ("combined", Format::Combined), ("json", Format::Json)]
    {
        assert_eq!(name.parse(), Ok(format));
        assert_eq!(format.to_string(), name);
    }
    assert_eq!(
        "Xml".parse::<Format>().unwrap_err().to_string(),
        r#""Xml" is not a format of logs; use common, combined or json"#
    );
}

#[test]
fn the_format_is_found_out_from_the_first_lines_and_none_of_them_is_lost() {
    let json = r#"{"ip":"203.0.113.9","ts":1791665736}"#;
    for line in [COMMON, COMBINED, json] {
        assert_eq!(calls(&traffic(format!("{line}\n{line}"), None, "ip")).len(), 2, "{line}");
        // After 19 that are none.
        let log = format!("{}{line}\n\n{line}\n", "\nstarting\n".repeat(19));
        let traffic = read(log.as_bytes(), None, &Fields::new("ip", None, None), Reading::default()).unwrap();
        assert_eq!(calls(&traffic), vec![(AT, "203.0.113.9".to_owned(), 1); 2], "{line}");
        assert_eq!(traffic.broken().count, 19);
        assert_eq!(traffic.broken().first[1].line, 4);
        // Detection stops after 20 lines.
        let log = format!("{}{line}", "starting\n".repeat(20));
        assert!(read(log.as_bytes(), None, &Fields::new("ip", None, None), Reading::default()).is_err());
    }
    // A combined line says that it is a combined log.
    assert_eq!(calls(&traffic(COMBINED, None, "agent"))[0].1, "Mozilla/5.0 (X11; Linux x86_64)");
    // What begins like JSON need not be.
    let log = format!("{{oops\n{COMMON}\n");
    let traffic = read(log.as_bytes(), None, &Fields::new("ip", None, None), Reading::default()).unwrap();
    assert_eq!(
        traffic.broken().first[0].to_string(),
        format!("line 1: there is no time in [ ] in \"{{oops\"; {HOW}")
    );
}

#[test]
fn a_log_in_no_known_format_is_said() {
    let advice =
        "use --format common, combined or json; for a CSV with the header at_us,key,cost use --trace";
    let long = "x".repeat(LINE_LEN_MAX + 1);
    for (log, said) in [
        ("foo\nbar\n", r#"line 1: "foo" is in no format of logs that is known"#),
        ("\n\nat_us,key,cost\n0,a,1\n", r#"line 3: "at_us,key,cost" is in no format of logs that is known"#),
        ("\u{1b}[2J", r#"line 1: "\x1b[2J" is in no format of logs that is known"#),
        (&long, "line 1: the line is longer than 65536 bytes"),
    ] {
        assert_eq!(refused(log, None, &Fields::new("ip", None, None)), format!("{said}; {advice}"));
    }
}

#[test]
fn a_few_broken_lines_are_counted_and_the_first_kept() {
    let mut log = String::new();
    for line in 1..=100_000 {
        let broken = line % 10_000 == 17;
        log += if broken { "?" } else { COMMON };
        log += "\n";
    }
    for format in [None, Some(Format::Common)] {
        let fields = Fields::new("ip", None, None);
        let traffic = read(log.as_bytes(), format, &fields, Reading::default()).unwrap();
        assert_eq!(traffic.calls().len(), 99_990);
        assert_eq!(traffic.broken().count, 10);
        let lines: Vec<u64> = traffic.broken().first.iter().map(|broken| broken.line).collect();
        assert_eq!(lines, [17, 10_017, 20_017, 30_017, 40_017]);
        let said = format!("line 17: there is no time in [ ] in \"?\"; {HOW}");
        assert_eq!(traffic.broken().first[0].to_string(), said);
        assert_eq!(refused(&log, format, &fields), said);
    }
}

#[test]
fn a_log_without_a_single_call_is_refused() {
    let fields = Fields::new("ip", None, None);
    let refused = |log: &str, format| read(log.as_bytes(), format, &fields, Reading::default()).unwrap_err();
    let error = refused("?\n!\n", Some(Format::Common));
    assert_eq!(error.to_string(), format!("line 1: there is no time in [ ] in \"?\"; {HOW}"));
    for log in ["", "\n\r\n  \n", "\u{feff}", "\u{feff}\n"] {
        for format in [None, Some(Format::Common), Some(Format::Json)] {
            assert_eq!(
                refused(log, format).to_string(),
                "there is not a single call; check that the log is the right one, and not empty"
            );
        }
    }
}

#[test]
fn more_calls_than_wanted_are_refused() {
    let log = format!("{COMMON}\n").repeat(3);
    let fields = Fields::new("ip", None, None);
    let read = |calls_max| read(log.as_bytes(), None, &fields, Reading { strict: false, calls_max });
    assert_eq!(read(3).unwrap().calls().len(), 3);
    assert_eq!(
        read(2).unwrap_err().to_string(),
        "there are more than 2 calls; take a part of them, or allow for more"
    );
}

#[test]
fn lines_end_in_every_way_and_a_byte_order_mark_is_passed_over() {
    let fields = Fields::new("agent", None, None);
    for end in ["\n", "\r\n"] {
        for last in ["", end, "\n\n"] {
            for begin in ["", "\u{feff}", "\u{feff}\n", "\n"] {
                let log = format!("{begin}{COMBINED}{end}{end}{COMBINED}{last}");
                for traffic in [
                    read(log.as_bytes(), None, &fields, STRICT).unwrap(),
                    read(OneByte(log.as_bytes()), None, &fields, STRICT).unwrap(),
                ] {
                    assert_eq!((traffic.calls().len(), traffic.keys()), (2, 1), "{log:?}");
                    assert_eq!(traffic.key(0), b"Mozilla/5.0 (X11; Linux x86_64)");
                }
            }
        }
    }
}

#[test]
fn a_line_that_is_too_long_is_passed_over_up_to_its_end() {
    let fits = |length: usize| format!("{COMBINED}{}", " ".repeat(length - COMBINED.len()));
    for end in ["\n", "\r\n"] {
        let mut log = fits(LINE_LEN_MAX) + end;
        for length in [LINE_LEN_MAX + 1, LINE_LEN_MAX + 7, 5 * LINE_LEN_MAX] {
            log += &(fits(length) + end + COMBINED + end);
        }
        // A blank one is no better, and one that the file ends with is one too.
        log += &(" ".repeat(LINE_LEN_MAX + 1) + end + COMBINED + end + &fits(LINE_LEN_MAX + 9));
        let fields = Fields::new("ip", None, None);
        for traffic in [
            read(log.as_bytes(), None, &fields, Reading::default()).unwrap(),
            read(OneByte(log.as_bytes()), None, &fields, Reading::default()).unwrap(),
        ] {
            assert_eq!(calls(&traffic), vec![(AT, "203.0.113.9".to_owned(), 1); 5]);
            assert_eq!(traffic.broken().count, 5);
            let lines: Vec<u64> = traffic.broken().first.iter().map(|broken| broken.line).collect();
            assert_eq!(lines, [2, 4, 6, 8, 10]);
        }
        assert_eq!(
            refused(log, None, &fields),
            "line 2: the line is longer than 65536 bytes; leave it out, or check that the file is a log"
        );
    }
}

#[test]
fn a_key_of_several_fields_may_be_too_long() {
    let line = COMMON.replace("/a/b", &"/".repeat(KEY_LEN_MAX / 2));
    let path = KEY_LEN_MAX / 2;
    let traffic = traffic(&line, None, "path,ident");
    assert_eq!(traffic.key(0).len(), path + 2);
    assert_eq!(
        refused(line, None, &Fields::new("path,path", None, None)),
        "line 1: a key of 65537 bytes is above the maximum, 65536; choose fewer fields or shorter ones"
    );
}

#[test]
fn lines_that_come_late_are_put_in_their_place_and_counted() {
    let mut log = String::new();
    for (second, path) in [(36, "a"), (38, "b"), (37, "c"), (38, "d"), (36, "e"), (39, "f")] {
        let line = COMMON.replace(":36 ", &format!(":{second} ")).replace("/a/b", path);
        log += &(line + "\n");
    }
    let traffic = traffic(log, None, "path");
    let order: String = calls(&traffic).into_iter().map(|(_, key, _)| key).collect();
    assert_eq!(order, "aecbdf");
    assert_eq!(traffic.sorted(), 2);
}

#[test]
fn a_reader_that_fails_is_said() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("no such luck"))
        }
    }
    for input in [None, Some(Format::Json)] {
        let error = read(Fails, input, &Fields::new("ip", None, None), Reading::default()).unwrap_err();
        assert_eq!(error.to_string(), "the calls cannot be read: no such luck; check the file");
    }
}
