//! Rate limits, concurrency limits and guards as tower layers, for axum, tonic, hyper and any other
//! tower service. This puts a limit in front of a route, a router or a whole server:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use sluicegate::Limiter;
//! use sluicegate_tower::{RateLimitLayer, key};
//! use std::net::SocketAddr;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Per address: 50 requests at once, then 10 per second.
//! let limit = RateLimitLayer::new(Limiter::new("token-bucket 10/s burst=50")?)
//!     .key(key::peer_ip())
//!     .name("api");
//!
//! let app = Router::new().route("/", get(async || "hello")).layer(limit);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! // The feature `axum` reads the address that this provides.
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A denied request gets a `429` with `Retry-After`, `RateLimit`, `RateLimit-Policy` and problem
//! details, or a gRPC status if it is a gRPC call. The limit belongs to the limiter: clones of the
//! layer, routes, connections and threads share it.
//!
//! - [`key`] has the keys: the peer's address, the address reported by your proxies, a header, the
//!   path, a closure. [`OnMissingKey`] says what happens to requests without one.
//! - [`RateLimitLayer::cost`] sets the cost of a request, [`RateLimitLayer::skip`] exempts
//!   requests.
//! - [`RateLimitLayer::enforce`] denies, [`RateLimitLayer::wait`] queues,
//!   [`RateLimitLayer::shadow`] only observes, and [`RateLimitLayer::observer`] reports each
//!   decision.
//! - [`RateLimitLayer::charge_if`] limits failed logins instead of logins;
//!   [`RateLimitLayer::settle`] is its general form.
//! - [`ConcurrencyLayer`] limits the requests in flight per key.
//! - [`BulkheadLayer`] limits the calls in flight of any service.
//! - [`GuardLayer`] puts a breaker, a bulkhead, a timeout and retries around a service.
//! - Any [`sluicegate::backend::Backend`] can decide: [`sluicegate::Limiter`] in memory,
//!   `sluicegate_redis::RedisLimiter` in a shared store, or your own.
//!
//! The guide is `docs/tower.md`; `examples/axum_app.rs` is a whole service.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot continue fails"))]

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
