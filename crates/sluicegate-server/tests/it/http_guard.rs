//! Which requests are served: hosts, origins, content types, passwords.

use crate::http_client::{Serving, posted};
use crate::running;
use sluicegate_server::auth::Password;
use sluicegate_server::server::Config;

const USER_42: &str = r#"{"limit":"sliding-log 5/60s","key":"user:42"}"#;

/// The status of a request with these header lines, after which the connection is closed.
fn status(serving: &Serving, request_line: &str, headers: &str) -> u16 {
    let answer = serving.say(format!("{request_line} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"));
    answer.split(' ').nth(1).unwrap_or_else(|| panic!("{answer:?}")).parse().unwrap()
}

#[test]
fn a_host_that_is_not_served_is_rejected() {
    let config = Config { hosts: vec!["limits.example".into()], ..running::config() };
    let serving = Serving::start(config);
    for host in ["localhost", "localhost:1", "127.0.0.1:8380", "[::1]:8380", "192.0.2.1", "limits.example:80"]
    {
        assert_eq!(status(&serving, "GET /healthz", &format!("Host: {host}\r\n")), 200, "{host}");
    }
    let strange_ports = ["localhost:evil.example", "localhost:99999999"];
    let evil = ["evil.example", "localhost.evil.example", "127.0.0.1.nip.example:8380"];
    for host in evil.into_iter().chain(strange_ports) {
        assert_eq!(status(&serving, "GET /healthz", &format!("Host: {host}\r\n")), 421, "{host}");
    }
    assert_eq!(status(&serving, "GET http://evil.example/healthz", "Host: localhost\r\n"), 421);
    for headers in ["", "Host: \r\n", "Host: localhost\r\nHost: localhost\r\n", "Host: a b\r\n"] {
        assert_eq!(status(&serving, "GET /healthz", headers), 400, "{headers:?}");
    }
}

#[test]
fn a_page_of_another_origin_is_rejected() {
    let serving = Serving::with_rules(&[]);
    let with_origin =
        |origin| status(&serving, "GET /v1/rules", &format!("Host: localhost:8380\r\nOrigin: {origin}\r\n"));
    assert_eq!(with_origin("http://localhost:8380"), 200);
    for origin in ["https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:8380"] {
        assert_eq!(with_origin(origin), 403, "{origin}");
    }
    let preflight =
        "Host: localhost\r\nOrigin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n";
    assert_eq!(status(&serving, "OPTIONS /v1/check", preflight), 403);
}

#[test]
fn a_body_must_be_json() {
    let serving = Serving::with_rules(&[]);
    for kind in ["Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n", ""] {
        let head = format!("Host: localhost\r\n{kind}Content-Length: {}\r\n", USER_42.len());
        let answer = serving.say(format!("POST /v1/check HTTP/1.1\r\n{head}\r\n{USER_42}"));
        assert!(answer.starts_with("HTTP/1.1 415 "), "{answer}");
        assert!(answer.contains("Content-Type: application/json"), "{answer}");
    }
    let charset = posted("/v1/check", USER_42).replace("application/json", "application/json; charset=utf-8");
    let mut raw = serving.connect();
    raw.send(charset);
    assert_eq!(raw.answer().0, 200);
}

#[test]
fn guessing_the_password_is_limited() {
    let config = Config { password: Some(Password::new(b"open sesame").unwrap()), ..running::config() };
    let serving = Serving::start(config);
    let ask = |said: &str| status(&serving, "GET /v1/rules", &format!("Host: localhost\r\n{said}"));
    for _ in 0..20 {
        assert_eq!(ask("Authorization: Bearer guess\r\n"), 401);
    }
    assert_eq!(ask("Authorization: Bearer guess\r\n"), 429);
    // It does not learn the right one either, until its wait is over. No password is no guess.
    assert_eq!(ask("Authorization: Bearer open sesame\r\n"), 429);
    assert_eq!(ask(""), 401);
    let answer = serving.say(
        "GET /v1/rules HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer guess\r\n\r\n",
    );
    assert!(answer.contains("\r\nretry-after: 6\r\n"), "{answer}");
    assert!(answer.contains("too many wrong passwords from this address"), "{answer}");
    let service = serving.server().service();
    let page = service.metrics.render(&service.engine);
    assert!(page.contains("sluice_auth_failures_total{protocol=\"http\"} 23\n"), "{page}");
    serving.clock.advance(std::time::Duration::from_secs(6));
    assert_eq!(ask("Authorization: Bearer open sesame\r\n"), 200);
}

#[test]
fn the_password_is_required() {
    let config = Config { password: Some(Password::new(b"open sesame").unwrap()), ..running::config() };
    let serving = Serving::start(config);
    for path in ["/v1/rules", "/metrics", "/openapi.json", "/nothing"] {
        let ask =
            |said: &str| status(&serving, &format!("GET {path}"), &format!("Host: localhost\r\n{said}"));
        assert_eq!(ask(""), 401, "{path}");
        assert_eq!(ask("Authorization: Bearer open sesam\r\n"), 401, "{path}");
        assert_eq!(ask("Authorization: Basic b3BlbiBzZXNhbWU=\r\n"), 401, "{path}");
        let expected = if path == "/nothing" { 404 } else { 200 };
        assert_eq!(ask("Authorization: Bearer open sesame\r\n"), expected, "{path}");
        assert_eq!(ask("Authorization: bearer open sesame\r\n"), expected, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(&serving, &format!("GET {path}"), "Host: localhost\r\n"), 200, "{path}");
    }
    let refused = serving.get("/v1/rules");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"sluicegate\""));
    assert!(refused.error().contains("Authorization: Bearer"));
}
