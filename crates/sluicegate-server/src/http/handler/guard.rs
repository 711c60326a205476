//! Which requests are served at all.
//!
//! A web page can make a visitor's browser post to loopback. But it cannot choose the `Host` that
//! the browser sends, it cannot hide its `Origin`, and it cannot send JSON to another origin
//! without a preflight request, which is never granted here.

use super::super::Context;
use super::problem::Rejection;
use crate::auth::AuthError;
use crate::net::Peer;
use crate::protocol::Protocol;
use axum::body::HttpBody;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use sluicegate::internal::grammar::quoted;
use std::net::IpAddr;

/// Paths for probes, which need no password.
const WITHOUT_PASSWORD: [&str; 2] = ["/healthz", "/readyz"];

/// Whether a client has shown that it may use the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Authentication {
    /// It has sent the password, or none is configured.
    Authenticated,
    /// It has asked for what needs no password.
    Unknown,
}

/// Admits a request, or says why not.
pub(super) fn admit<B: HttpBody>(
    request: &Request<B>,
    context: &Context,
) -> Result<Authentication, Rejection> {
    let service = &context.service;
    only_chunked(request.headers())?;
    let host = host(request)?;
    if !is_served(&host, &service.hosts) {
        return Err(Rejection::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!(
                "host {} is not served here; use an IP address or localhost, or add it to hosts in [server]",
                quoted(host.host())
            ),
        ));
    }
    if let Some(origin) = single(request.headers(), &ORIGIN)?
        && !is_of_host(origin, &host)
    {
        return Err(Rejection::new(
            StatusCode::FORBIDDEN,
            format!("origin {} is not allowed; only pages of this host may call it", quoted(origin)),
        ));
    }
    let authentication = if WITHOUT_PASSWORD.contains(&request.uri().path()) {
        if service.password.is_none() { Authentication::Authenticated } else { Authentication::Unknown }
    } else if context.progress.client().is_in_reserve() {
        service.metrics.rejected(Protocol::Http);
        return Err(Rejection::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "connections_max is reached, and only health probes are served; retry later",
        ));
    } else {
        authenticate(request.headers(), context)?;
        Authentication::Authenticated
    };
    let has_body = request.method() == Method::POST || !request.body().is_end_stream();
    if has_body && !single(request.headers(), &CONTENT_TYPE)?.is_some_and(is_json) {
        return Err(Rejection::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the Content-Type is not JSON; send the header Content-Type: application/json",
        ));
    }
    Ok(authentication)
}

/// Rejects any transfer coding but `chunked`. hyper undoes `chunked` and ignores others, and a
/// proxy in front may read the same bytes differently.
fn only_chunked(headers: &HeaderMap) -> Result<(), Rejection> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if is_chunked(coding) => Ok(()),
        _ => Err(Rejection::new(
            StatusCode::NOT_IMPLEMENTED,
            "the Transfer-Encoding is not supported; send chunked alone, or a Content-Length",
        )),
    }
}

/// The requested host: that of the URL if it has one (as requests to proxies do), or that of the
/// header.
fn host<B>(request: &Request<B>) -> Result<Authority, Rejection> {
    let wrong = |message| Rejection::new(StatusCode::BAD_REQUEST, message);
    let header = single(request.headers(), &HOST)?;
    if let Some(authority) = request.uri().authority() {
        return Ok(authority.clone());
    }
    let header = header.ok_or_else(|| wrong("the Host header is missing; HTTP/1.1 requires it"))?;
    header
        .parse()
        .map_err(|_| wrong("the Host header is not a host name; send the name or address of this server"))
}

/// The value of a header that may occur once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Rejection> {
    let wrong = |what| Rejection::new(StatusCode::BAD_REQUEST, format!("the {name} header {what}"));
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(wrong("is sent twice; send it once"));
    }
    value.to_str().map(Some).map_err(|_| wrong("is not ASCII; remove other characters"))
}

/// Returns `true` for `localhost`, any IP address, and the names in `hosts`. A web page that points
/// its own name at this server (DNS rebinding) is none of these.
fn is_served(authority: &Authority, hosts: &[String]) -> bool {
    let host = authority.host();
    let is_address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    let is_named = || hosts.iter().any(|served| served.eq_ignore_ascii_case(host));
    // The host alone, or with a numeric port.
    let is_plain = authority.as_str().len() == host.len() || authority.port_u16().is_some();
    is_plain
        && !authority.as_str().contains('@')
        && (is_address || host.eq_ignore_ascii_case("localhost") || is_named())
}

/// Returns `true` if an origin is this host.
fn is_of_host(origin: &str, host: &Authority) -> bool {
    let of =
        |scheme| origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_str()));
    of("http://") || of("https://")
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

fn authenticate(headers: &HeaderMap, context: &Context) -> Result<(), Rejection> {
    let service = &context.service;
    if service.password.is_none() {
        return Ok(());
    }
    let mut bearers = headers.get_all(AUTHORIZATION).iter().filter_map(|value| {
        let (scheme, secret) = value.as_bytes().split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(secret)
    });
    let peer = Peer::of(context.progress.client().address);
    // A request without a password is no guess.
    let checked = bearers.next().map(|secret| service.authenticate(Protocol::Http, peer, secret));
    match checked {
        Some(Ok(())) => Ok(()),
        Some(Err(AuthError::TooMany(wait))) => Err(Rejection::too_many(
            "too many wrong passwords from this address; retry after Retry-After, with the right one",
            wait,
        )),
        Some(Err(AuthError::Wrong)) | None => Err(Rejection::new(
            StatusCode::UNAUTHORIZED,
            "the password is missing or wrong; send it as Authorization: Bearer PASSWORD",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serves(host: &str, hosts: &[&str]) -> bool {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.into()).collect();
        is_served(&host.parse().unwrap(), &hosts)
    }

    #[test]
    fn loopback_and_addresses_are_served_on_any_port() {
        for host in
            ["localhost", "LocalHost:8380", "127.0.0.1", "127.0.0.1:1", "[::1]:8380", "[::1]", "10.1.2.3:80"]
        {
            assert!(serves(host, &[]), "{host}");
        }
    }

    #[test]
    fn other_names_are_served_only_if_configured() {
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
    fn an_origin_must_have_the_same_host_and_port() {
        let host: Authority = "127.0.0.1:8380".parse().unwrap();
        assert!(is_of_host("http://127.0.0.1:8380", &host));
        for origin in
            ["null", "http://127.0.0.1", "http://127.0.0.1:8381", "https://evil.example", "127.0.0.1:8380"]
        {
            assert!(!is_of_host(origin, &host), "{origin}");
        }
    }

    #[test]
    fn a_json_content_type_may_have_parameters() {
        assert!(is_json("application/json") && is_json("Application/JSON; charset=utf-8"));
        for other in ["text/plain", "application/jsonp", "application/x-www-form-urlencoded", ""] {
            assert!(!is_json(other), "{other}");
        }
    }
}
