//! Keeps one failure from becoming many: what stands between a service and what it calls.
//!
//! ```
//! use sluicegate_guard::{Guard, guard::Failure};
//! use std::time::Duration;
//!
//! let payments = Guard::builder("payments")
//!     .retry("retry 2 budget=10%")
//!     .breaker("breaker 50%/10s")
//!     .bulkhead("bulkhead 10 queue=5 wait=1s")
//!     .timeout(Duration::from_secs(2))
//!     .build()?;
//! let answer: Result<u32, Failure<String>> = payments.call_blocking(|| Ok(7));
//! assert_eq!(answer, Ok(7));
//! # Ok::<(), sluicegate_guard::BuildError>(())
//! ```
//!
//! - [`Guard`] combines fallback, retries, breaker, bulkhead and timeout around a call: [`guide::guard`].
//! - [`Breaker`] stops calls to what keeps failing, [`KeyedBreakers`] is one for each key: [`guide::breaker`].
//! - [`Bulkhead`] limits how many calls run at once, and can find the limit itself: [`guide::adaptive`].
//! - [`Retries`] are further tries within a budget, [`timeout`] works in any runtime.
//!
//! Limits on rates, keys, waiting and leases are the crate `sluicegate`; clocks and keys are the same in both.
//!
//! # Map
//!
//! One folder a part: [`breaker`], [`bulkhead`], [`adaptive`], [`retry`], `timeout`, and [`guard`] around
//! them. The state machines are pure: [`breaker::machine`], [`adaptive`] without its line of text, and
//! `retry/budget.rs` have no clock, lock or I/O; the time is an argument. The rest of each folder adds the clock,
//! the lock and the line of text.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on fails"))]

pub mod adaptive;
pub mod breaker;
pub mod bulkhead;
mod event;
pub mod guard;
pub mod retry;
mod text;
mod timeout;

pub use adaptive::AdaptiveLimit;
pub use breaker::{Breaker, KeyedBreakers, Outcome};
pub use bulkhead::Bulkhead;
pub use event::{Event, Observer};
pub use guard::Guard;
pub use retry::Retries;
pub use sluicegate::clock::{Clock, ManualClock, SystemClock};
pub use sluicegate::wait::{Denial, Priority};
pub use sluicegate::{BuildError, Key, LimitError, RetryAfter, Span, Time};
pub use text::{Config, IntoConfig};
pub use timeout::{TimedOut, timeout, timeout_on};

/// From the problem to the line of code.
pub mod guide {
    #[doc = include_str!("../docs/guard.md")]
    pub mod guard {}

    #[doc = include_str!("../docs/breaker.md")]
    pub mod breaker {}

    #[doc = include_str!("../docs/adaptive.md")]
    pub mod adaptive {}
}
