//! Who may ask at all.
//!
//! A web page can make its visitor's browser post to loopback. It cannot choose the `Host` that the browser sends, it
//! cannot hide its `Origin`, and it cannot send JSON elsewhere without asking first, which is never granted here.

use super::problem::Rejection;
use crate::service::Service;
use axum::body::HttpBody;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, Request, StatusCode};
use sluicegate::internal::grammar::quoted;
use std::net::IpAddr;

/// What whoever starts and watches the server may see without a password.
const WITHOUT_PASSWORD: [&str; 2] = ["/healthz", "/readyz"];

/// Lets a request pass, or says why not.
pub(super) fn admit<B: HttpBody>(request: &Request<B>, service: &Service) -> Result<(), Rejection> {
    let host = host(request)?;
    if !is_served(&host, &service.hosts) {
        return Err(Rejection::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!(
                "the host {} is not served here; use an address or localhost, or add it to hosts",
                quoted(host.host())
            ),
        ));
    }
    if let Some(origin) = single(request.headers(), &ORIGIN)?
        && !is_of_host(origin, &host)
    {
        return Err(Rejection::new(
            StatusCode::FORBIDDEN,
            format!("pages of the origin {} may not ask here; only those of this host may", quoted(origin)),
        ));
    }
    if !WITHOUT_PASSWORD.contains(&request.uri().path()) {
        knows_password(request.headers(), service)?;
    }
    let has_body = request.method() == Method::POST || !request.body().is_end_stream();
    if has_body && !single(request.headers(), &CONTENT_TYPE)?.is_some_and(is_json) {
        return Err(Rejection::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a body needs the header Content-Type: application/json",
        ));
    }
    Ok(())
}

/// The host that is asked: of the URL if it stands there, which only proxies are sent, else of the header.
fn host<B>(request: &Request<B>) -> Result<Authority, Rejection> {
    let wrong = |message| Rejection::new(StatusCode::BAD_REQUEST, message);
    let header = single(request.headers(), &HOST)?;
    if let Some(authority) = request.uri().authority() {
        return Ok(authority.clone());
    }
    let header = header.ok_or_else(|| wrong("there is no Host header; HTTP/1.1 needs one"))?;
    header.parse().map_err(|_| wrong("the Host header is not a host"))
}

/// The value of a header that may come once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Rejection> {
    let wrong = |what| Rejection::new(StatusCode::BAD_REQUEST, format!("the header {name} {what}"));
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(wrong("came twice; send it once"));
    }
    value.to_str().map(Some).map_err(|_| wrong("is not plain text"))
}

/// Loopback by name, any address, and what the configuration names. A name that somebody else points at us is none of
/// these, so that a page cannot reach us under its own name.
fn is_served(asked: &Authority, hosts: &[String]) -> bool {
    let host = asked.host();
    let is_address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    let is_named = || hosts.iter().any(|served| served.eq_ignore_ascii_case(host));
    // The host alone, or with a port that is a number.
    let is_plain = asked.as_str().len() == host.len() || asked.port_u16().is_some();
    is_plain
        && !asked.as_str().contains('@')
        && (is_address || host.eq_ignore_ascii_case("localhost") || is_named())
}

/// Whether a page of this origin is one of ours.
fn is_of_host(origin: &str, host: &Authority) -> bool {
    let of =
        |scheme| origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_str()));
    of("http://") || of("https://")
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

fn knows_password(headers: &HeaderMap, service: &Service) -> Result<(), Rejection> {
    let Some(password) = &service.password else { return Ok(()) };
    let mut said = headers.get_all(AUTHORIZATION).iter().filter_map(|value| {
        let (scheme, secret) = value.as_bytes().split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(secret)
    });
    if said.next().is_some_and(|secret| password.is(secret)) {
        return Ok(());
    }
    Err(Rejection::new(StatusCode::UNAUTHORIZED, "send the password as Authorization: Bearer PASSWORD"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serves(host: &str, hosts: &[&str]) -> bool {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.into()).collect();
        is_served(&host.parse().unwrap(), &hosts)
    }

    #[test]
    fn loopback_and_addresses_are_served_with_any_port() {
        for host in
            ["localhost", "LocalHost:8380", "127.0.0.1", "127.0.0.1:1", "[::1]:8380", "[::1]", "10.1.2.3:80"]
        {
            assert!(serves(host, &[]), "{host}");
        }
    }

    #[test]
    fn other_names_are_served_only_if_the_configuration_says_so() {
        for host in [
            "evil.example",
            "localhost.evil.example:8380",
            "127.0.0.1.evil.example",
            "me@localhost",
            "2130706433",
        ] {
            assert!(!serves(host, &[]), "{host}");
            assert!(!serves(host, &["limits.example"]), "{host}");
        }
        assert!(serves("Limits.example:8380", &["limits.example"]));
    }

    #[test]
    fn an_origin_is_ours_only_with_the_same_host_and_port() {
        let host: Authority = "127.0.0.1:8380".parse().unwrap();
        assert!(is_of_host("http://127.0.0.1:8380", &host));
        for origin in
            ["null", "http://127.0.0.1", "http://127.0.0.1:8381", "https://evil.example", "127.0.0.1:8380"]
        {
            assert!(!is_of_host(origin, &host), "{origin}");
        }
    }

    #[test]
    fn json_is_json_with_or_without_parameters() {
        assert!(is_json("application/json") && is_json("Application/JSON; charset=utf-8"));
        for other in ["text/plain", "application/jsonp", "application/x-www-form-urlencoded", ""] {
            assert!(!is_json(other), "{other}");
        }
    }
}
