//! A limit on the requests in flight, per key.
//!
//! `layer.rs` has the settings, `service.rs` the service, `future.rs` its response, `body.rs` a
//! response body that holds the request's lease until it ends. What it shares with other layers is
//! in `common.rs`.

mod body;
mod future;
mod layer;
mod service;

pub use body::LeasedBody;
pub use future::ConcurrencyLimitFuture;
pub use layer::{ConcurrencyLayer, HoldUntil};
pub use service::ConcurrencyLimit;
