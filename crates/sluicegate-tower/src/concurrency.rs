//! At most a number of requests in flight, for each key.
//!
//! `layer.rs` is the settings, `service.rs` the service, `future.rs` its response, `body.rs` a
//! response's body that holds the request's lease until it has ended. What it shares with other
//! layers is in `common.rs`.

mod body;
mod future;
mod layer;
mod service;

pub use body::LeasedBody;
pub use future::ConcurrencyLimitFuture;
pub use layer::{ConcurrencyLayer, HoldUntil};
pub use service::ConcurrencyLimit;
