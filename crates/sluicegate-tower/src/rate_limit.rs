//! A rate limit per key in front of a service.
//!
//! `layer.rs` has the settings, `service.rs` the service, `future.rs` its response; `admitted.rs`
//! asks the limiter and settles charges, `settle.rs` says how much stays charged, `fields.rs`
//! writes header fields, `event.rs` is what an observer sees. What it shares with other layers is
//! in `common.rs`.

mod admitted;
mod event;
mod fields;
mod future;
mod layer;
mod service;
mod settle;

pub use event::{EventKind, RateLimitEvent};
pub use future::RateLimitFuture;
pub use layer::RateLimitLayer;
pub use service::RateLimit;
pub use settle::{Charge, Completion};
