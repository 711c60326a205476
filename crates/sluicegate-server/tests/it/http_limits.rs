//! Exceeds every bound on HTTP clients.

use crate::http_client::{Serving, posted};
use crate::running::{self, TEST_TIMEOUT};
use sluicegate_server::connection_limits::ConnectionLimits;
use sluicegate_server::engine::Settings;
use sluicegate_server::server::Config;
use std::time::{Duration, Instant};

const USER_42: &str = r#"{"rule":"reply","key":"user:42"}"#;

fn with_limits(limits: ConnectionLimits) -> Serving {
    let rules = vec![running::rule("reply", &["sliding-log 5/60s"])];
    Serving::start(Config { limits, rules, ..running::config() })
}

/// Short enough to wait for, and longer than a busy machine delays a client. The other timeouts
/// stay long.
const SOON: Duration = Duration::from_millis(500);

#[test]
fn a_long_head_is_431() {
    let serving = with_limits(ConnectionLimits { request_head_max: 1_000, ..ConnectionLimits::default() });
    let head = |filling| {
        format!(
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: {}\r\n\r\n",
            "x".repeat(filling)
        )
    };
    let fixed = head(0).len();
    assert!(serving.say(head(999 - fixed)).starts_with("HTTP/1.1 200 "));
    assert!(serving.say(head(1_001 - fixed)).starts_with("HTTP/1.1 431 "));
    assert!(serving.say(head(500_000)).starts_with("HTTP/1.1 431 "));
    // Nor is an endless one waited for.
    assert!(serving.say(format!("GET /{}", "x".repeat(100_000))).starts_with("HTTP/1.1 4"));
    serving.counts_protocol_errors(3);
}

#[test]
fn a_long_body_is_413() {
    let serving = with_limits(ConnectionLimits { request_body_max: 1_000, ..ConnectionLimits::default() });
    let body = |length: usize| format!("{USER_42}{}", " ".repeat(length - USER_42.len()));
    assert_eq!(serving.post("/v1/check", &body(1_000)).status, 200);
    // Announced: it is not read at all.
    let answer = serving.say(&posted("/v1/check", &body(1_001)).as_bytes()[..200]);
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("more than 1000 bytes"), "{answer}");
    // Sent all the same, and much of it: the response still arrives.
    assert!(serving.say(posted("/v1/check", &body(500_000))).starts_with("HTTP/1.1 413 "));
    // Not announced.
    let chunked = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("64\r\n{}\r\n", " ".repeat(100));
    assert!(serving.say(format!("{chunked}{}", chunk.repeat(11))).starts_with("HTTP/1.1 413 "));
    serving.counts_protocol_errors(3);
    let small = format!("{chunked}{:x}\r\n{USER_42}\r\n0\r\n\r\n", USER_42.len());
    let mut raw = serving.connect();
    raw.send(small);
    assert_eq!(raw.answer().0, 200);
}

#[test]
fn a_bare_line_feed_in_a_head_is_400() {
    let serving = with_limits(ConnectionLimits::default());
    let valid = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
    for invalid in [
        "\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "GET /healthz HTTP/1.1\nHost: localhost\r\n\r\n".to_owned(),
        format!("{valid}A: b\nC: d\r\n\r\n"),
        format!("{valid}\n"),
    ] {
        assert!(serving.say(&invalid).starts_with("HTTP/1.1 400 "), "{invalid:?}");
        // Behind another request, and behind a body with such bytes.
        let body = format!("\n{USER_42}\n\n");
        let before = format!("{valid}\r\n{}", posted("/v1/check", &body));
        let mut raw = serving.connect();
        raw.send(before.clone() + &invalid);
        let codes: Vec<u16> = (0..3).map(|_| raw.answer().0).collect();
        assert_eq!(codes, [200, 200, 400], "{invalid:?}");
    }
    // After a chunked body the connection ends, as its end is found by hyper only.
    let chunked = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = format!("1\r\n\n\r\n{:x}\r\n{USER_42}\r\n0\r\n\r\n", USER_42.len());
    let answer = serving.say(format!("{chunked}{chunks}{valid}\n"));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

#[test]
fn only_chunked_is_a_transfer_encoding() {
    let serving = with_limits(ConnectionLimits::default());
    let ask = |codings: &str| {
        let head = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        let body = format!("{:x}\r\n{USER_42}\r\n0\r\n\r\n", USER_42.len());
        serving.say(format!("{head}Connection: close\r\n{codings}\r\n{body}"))
    };
    assert!(ask("Transfer-Encoding: Chunked \r\n").starts_with("HTTP/1.1 200 "));
    for codings in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: \r\nTransfer-Encoding: chunked\r\n",
    ] {
        let answer = ask(codings);
        assert!(
            answer.starts_with("HTTP/1.1 501 ") || answer.starts_with("HTTP/1.1 400 "),
            "{codings}: {answer}"
        );
    }
}

#[test]
fn more_than_64_checks_are_rejected() {
    let serving = with_limits(ConnectionLimits::default());
    let checks = |count| format!(r#"{{"checks":[{}]}}"#, vec![USER_42; count].join(","));
    let reply = serving.post("/v1/check", &checks(65));
    assert_eq!(reply.status, 400);
    assert!(reply.error().contains("more than 64 items"), "{reply:?}");
    assert_eq!(serving.post("/v1/check", &checks(64)).status, 200);
}

#[test]
fn keys_and_costs_are_bounded() {
    let settings = Settings { key_len_max: 10, cost_max: 3, ..running::config().settings };
    let rules = vec![running::rule("reply", &["sliding-log 5/60s"])];
    let serving = Serving::start(Config { settings, rules, ..running::config() });
    let ask = |key: &str, cost| {
        serving.post("/v1/check", &format!(r#"{{"rule":"reply","key":"{key}","cost":{cost}}}"#))
    };
    assert_eq!(ask("0123456789", 3).status, 200);
    assert!(ask("0123456789a", 3).error().contains("use at most 10"));
    assert!(ask("0123456789", 4).error().contains("use at most 3"));
}

#[test]
fn an_inline_list_has_a_longest_text() {
    let serving = with_limits(ConnectionLimits::default());
    let check =
        |limits: &str| serving.post("/v1/check", &format!(r#"{{"limit":"{limits}","key":"user:42"}}"#));
    let longest = running::longest_list();
    let reply = check(&longest);
    assert_eq!((reply.status, reply.json()["remaining"].as_u64()), (200, Some(8)));
    let reply = check(&format!("{longest} "));
    assert_eq!(reply.status, 400);
    assert!(
        reply
            .error()
            .ends_with("limits of 2070 bytes are above the maximum, 2069; shorten them, or leave some out"),
        "{reply:?}"
    );
    let reply = check(&["pacer 1/s"; 9].join(" + "));
    assert!(
        reply.error().ends_with("a list of 9 limits is above the maximum, 8; leave some out"),
        "{reply:?}"
    );
}

#[test]
fn deeply_nested_json_is_rejected() {
    let serving = with_limits(ConnectionLimits::default());
    // Checks do not nest, so 64 is the total.
    for depth in [2, 5_000] {
        let deep = format!("{}{}", r#"{"checks":["#.repeat(depth), "]}".repeat(depth));
        let reply = serving.post("/v1/check", &deep);
        assert_eq!(reply.status, 400);
        assert!(reply.error().contains("checks[0] does not take \"checks\""), "{reply:?}");
    }
    assert_eq!(serving.post("/v1/check", &"[".repeat(100_000)).status, 400);
}

/// Sends the bytes slowly, one by one, until the server closes. Returns what it sent, and how long
/// it took.
fn dribble(serving: &Serving, bytes: &str) -> (String, Duration) {
    let mut raw = serving.connect();
    let began = Instant::now();
    let sender = raw.writer();
    let bytes = bytes.to_owned();
    let dribbling = std::thread::spawn(move || {
        use std::io::Write as _;
        let mut sender = sender;
        // Ends when the server has closed.
        for byte in bytes.bytes() {
            if sender.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(SOON / 10);
        }
    });
    let answer = raw.until_closed();
    let took = began.elapsed();
    drop(raw);
    dribbling.join().unwrap();
    (answer, took)
}

#[test]
fn a_slow_head_times_out() {
    let serving = with_limits(ConnectionLimits { request_timeout: SOON, ..ConnectionLimits::default() });
    let (answer, took) = dribble(&serving, &"GET /healthz HTTP/1.1\r\nX: ".repeat(40));
    assert_eq!(answer, "");
    assert!(took >= SOON && took < SOON * 50, "all of it would have taken SOON * 100: {took:?}");
    serving.counts_protocol_errors(1);
}

#[test]
fn a_slow_body_is_408() {
    let serving = with_limits(ConnectionLimits { request_timeout: SOON, ..ConnectionLimits::default() });
    let mut raw = serving.connect();
    let request = posted("/v1/check", USER_42);
    let began = Instant::now();
    raw.send(&request[..request.len() - 1]);
    let answer = raw.until_closed();
    let took = began.elapsed();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(took >= SOON, "{took:?}");
    serving.counts_protocol_errors(1);
}

#[test]
fn a_pipelined_request_has_its_own_timeout() {
    let limits =
        ConnectionLimits { request_timeout: SOON, idle_timeout: None, ..ConnectionLimits::default() };
    let serving = with_limits(limits);
    let mut raw = serving.connect();
    let request = posted("/v1/check", USER_42);
    raw.send(format!("{request}{}", &request[..request.len() - 1]));
    assert_eq!(raw.answer().0, 200);
    assert!(raw.until_closed().starts_with("HTTP/1.1 408 "));
    serving.counts_protocol_errors(1);
}

#[test]
fn an_idle_connection_is_closed_after_idle_timeout() {
    let limits = ConnectionLimits { idle_timeout: Some(SOON), ..ConnectionLimits::default() };
    let serving = with_limits(limits);
    let began = Instant::now();
    assert_eq!(serving.connect().until_closed(), "");
    assert!(began.elapsed() >= SOON);
    let mut used = serving.connect();
    let began = Instant::now();
    used.send(posted("/v1/check", USER_42));
    assert_eq!(used.answer().0, 200);
    assert_eq!(used.until_closed(), "");
    assert!(began.elapsed() >= SOON, "{:?}", began.elapsed());
    // An idle connection is not an error.
    serving.counts_protocol_errors(0);
}

#[test]
fn idle_timeout_may_exceed_request_timeout() {
    let serving = with_limits(ConnectionLimits { request_timeout: SOON, ..ConnectionLimits::default() });
    let mut raw = serving.connect();
    for _ in 0..2 {
        std::thread::sleep(SOON * 2);
        raw.send(posted("/v1/check", USER_42));
        assert_eq!(raw.answer().0, 200);
    }
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let serving = with_limits(ConnectionLimits { unread_timeout: SOON, ..ConnectionLimits::default() });
    let mut raw = serving.connect();
    let many = posted("/v1/check", USER_42).repeat(100);
    // Until the buffers of both sides are full, and the server has given up.
    let began = Instant::now();
    while raw.try_send(many.as_bytes()) {
        assert!(began.elapsed() < TEST_TIMEOUT, "the server never stops reading");
    }
    serving.counts_protocol_errors(1);
}

#[test]
fn bytes_that_are_not_http_are_rejected() {
    let serving = with_limits(ConnectionLimits::default());
    let nonsense = [
        "*1\r\n$4\r\nPING\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /healthz HTTP/9.9\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost localhost\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ];
    for (place, bytes) in nonsense.into_iter().enumerate() {
        let answer = serving.say(bytes);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{bytes:?}: {answer}");
        serving.counts_protocol_errors(u64::try_from(place).unwrap() + 1);
    }
    assert_eq!(serving.get("/healthz").status, 200);
}
