//! A small service with three limits: by address, by API key and cost, and for failed logins.
//!
//! ```text
//! cargo run -p sluicegate-tower --example axum_app
//! ```
//!
//! It prints what to try. With curl:
//!
//! ```text
//! $ for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%{http_code} ' localhost:3000/; done
//! 200 200 200 200 200 429
//! $ curl -i localhost:3000/
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/problem+json
//! retry-after: 1
//! ratelimit-policy: "home";q=1;w=1;sluice-burst=5
//! ratelimit: "home";r=0;t=5
//! content-length: 187
//!
//! {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
//!  "title":"Rate limit exceeded","status":429,"detail":"denied by `home`; retry in 1 s","violated-policies":["home"]}
//! $ for i in 1 2 3; do curl -s -o /dev/null -w '%{http_code} ' -H 'x-api-key: acme' 'localhost:3000/report?big'; done
//! 200 200 429
//! $ curl -s localhost:3000/report
//! {"type":"about:blank","title":"Bad Request","status":400,
//!  "detail":"the request has no key to charge"}
//! $ curl -i -d open-sesame localhost:3000/login
//! HTTP/1.1 200 OK
//! content-type: text/plain; charset=utf-8
//! ratelimit-policy: "failed-logins";q=3;w=300
//! ratelimit: "failed-logins";r=3;t=0
//! content-length: 8
//!
//! welcome
//! $ for i in 1 2 3 4; do curl -s -o /dev/null -w '%{http_code} ' -d guess localhost:3000/login; done
//! 401 401 401 429
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use sluicegate::{BuildError, Limiter};
use sluicegate_tower::{OnMissingKey, RateLimitLayer, key};
use std::net::SocketAddr;

/// The service.
///
/// # Errors
/// When a limit is not one.
pub fn router() -> Result<Router, BuildError> {
    // Each address: five at once, then one per second.
    let by_address =
        RateLimitLayer::new(Limiter::new("token-bucket 1/s burst=5")?).key(key::peer_ip()).name("home");

    // Each API key: 100 points a minute. A report costs 10, a big one 50.
    let by_api_key = RateLimitLayer::new(Limiter::new("sliding-log 100/min")?)
        .key(key::header("x-api-key"))
        .on_missing_key(OnMissingKey::Reject)
        .cost(|head| if head.uri.query() == Some("big") { 50 } else { 10 })
        .name("reports");

    // Each address: three wrong passwords in five minutes. Right ones do not count.
    let failed_logins = RateLimitLayer::new(Limiter::new("sliding-log 3/5min")?)
        .key(key::peer_ip())
        .charge_if(|status| status == StatusCode::UNAUTHORIZED)
        .name("failed-logins");

    Ok(Router::new()
        .route("/", get(async || "hello\n").layer(by_address))
        .route("/report", get(async || "a report\n").layer(by_api_key))
        .route("/login", post(login).layer(failed_logins)))
}

async fn login(password: String) -> (StatusCode, &'static str) {
    match password.as_str() {
        "open-sesame" => (StatusCode::OK, "welcome\n"),
        _ => (StatusCode::UNAUTHORIZED, "no\n"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| String::from("127.0.0.1:3000"));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let at = listener.local_addr()?;
    println!(
        "listening on http://{at}; try:

  for i in 1 2 3 4 5 6; do curl -i http://{at}/; done                          # the sixth is a 429
  for i in 1 2 3; do curl -i -H 'x-api-key: acme' 'http://{at}/report?big'; done # the third is a 429
  curl -i http://{at}/report                                                   # no key: 400
  for i in 1 2 3 4 5; do curl -i -d open-sesame http://{at}/login; done          # as often as you like
  for i in 1 2 3 4; do curl -i -d guess http://{at}/login; done                # the fourth is a 429
"
    );
    // Without `connect_info` the addresses would be unknown.
    axum::serve(listener, router()?.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
