//! Somebody calls your HTTP service too often. This puts a limit in front of a route, a router or a whole server, for axum, tonic,
//! hyper and whatever else is a tower service:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use sluicegate::Limiter;
//! use sluicegate_tower::{RateLimitLayer, key};
//! use std::net::SocketAddr;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Each address: 50 requests at once, then 10 a second.
//! let limit = RateLimitLayer::new(Limiter::new("token-bucket 10/s burst=50")?).key(key::peer_ip()).name("api");
//!
//! let app = Router::new().route("/", get(async || "hello")).layer(limit);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! // The feature `axum` finds the address where this puts it.
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Whoever is too fast gets a `429` with `Retry-After`, `RateLimit`, `RateLimit-Policy` and problem details, or a gRPC status if it
//! was a gRPC call; whoever obeys is admitted. The limit belongs to the limiter: clones of the layer, routes, connections and
//! threads share it.
//!
//! - [`key`] says whom a request is charged to: the peer's address, the one that your proxies tell, a header, the path, a
//!   closure. [`OnMissingKey`] says what happens to requests that have none.
//! - [`RateLimitLayer::cost`] says what it is worth, [`RateLimitLayer::skip`] what is none of the limit's business.
//! - [`RateLimitLayer::enforce`] refuses, [`RateLimitLayer::wait`] lets requests wait for their turn,
//!   [`RateLimitLayer::shadow`] only watches, and [`RateLimitLayer::observer`] tells you about it.
//! - [`RateLimitLayer::charge_if`] limits failed logins and not logins; [`RateLimitLayer::settle`] is its general form.
//! - [`ConcurrencyLayer`] lets so many requests of each key be under way at once.
//! - [`BulkheadLayer`] lets so many calls be under way at once, of services of any kind.
//! - [`GuardLayer`] puts a breaker, a bulkhead, a timeout and retries around a service.
//! - What decides is any [`sluicegate::backend::Backend`]: [`sluicegate::Limiter`] in memory, `sluicegate_redis::RedisLimiter` in a
//!   store that several processes share, or your own.
//!
//! The page `docs/tower.md` has all of it, with timelines and honest limits; `examples/axum_app.rs` is a whole service.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on fails"))]

mod bulkhead;
mod common;
mod concurrency;
mod future;
mod guard;
pub mod key;
mod rate_limit;
mod rejection;
mod request_head;

pub use bulkhead::{BulkheadDenied, BulkheadFuture, BulkheadLayer, BulkheadService};
pub use common::OnMissingKey;
pub use concurrency::{ConcurrencyLayer, ConcurrencyLimit, ConcurrencyLimitFuture, HoldUntil, LeasedBody};
pub use guard::{
    CloneRequest, Fallback, GuardFuture, GuardLayer, GuardService, NoFallback, NoRetry, RetryWith,
};
pub use key::{KeyExtractor, MissingKey, RequestKey};
pub use rate_limit::{
    Charge, Completion, EventKind, RateLimit, RateLimitEvent, RateLimitFuture, RateLimitLayer,
};
pub use rejection::{GrpcStatus, ProblemDetails, Reason, Rejection, Respond, RespondWith};
pub use request_head::RequestHead;
