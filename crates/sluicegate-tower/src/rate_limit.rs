//! A limit in front of a service, for each key.
//!
//! `layer.rs` is the settings, `service.rs` the service, `future.rs` its response; `admitted.rs`
//! asks the limiter and settles what was charged, `after.rs` says how much that is, `fields.rs`
//! writes header fields, `observe.rs` is what an observer sees. What it shares with other layers is
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
