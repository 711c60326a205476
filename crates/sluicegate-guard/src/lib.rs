//! Circuit breakers, bulkheads, adaptive limits, timeouts, retries and fallbacks around calls to a
//! dependency, so that one failure does not become many.
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
//! - [`Guard`] combines fallback, retries, breaker, bulkhead and timeout around a call:
//!   [`guide::guard`].
//! - [`Breaker`] stops calls to a dependency that keeps failing; [`KeyedBreakers`] has one per key:
//!   [`guide::breaker`].
//! - [`Bulkhead`] limits the calls in flight, and can find the limit itself: [`guide::adaptive`].
//! - [`Retries`] are retries within a budget; [`timeout()`] works on any runtime.
//!
//! Rate limits, waiting and leases are in the crate `sluicegate`; both crates use the same clocks
//! and keys.
//!
//! # Map
//!
//! One folder per part: [`breaker`], [`bulkhead`], [`adaptive`], [`retry`], `timeout`, and
//! [`guard`] around them. Each folder adds the clock, the lock and the parser to a pure state
//! machine.
//!
//! # Invariants
//!
//! - State machines are pure: [`breaker::machine`], [`adaptive`] (except its parser) and
//!   `retry/budget.rs` have no clock, lock, I/O or floats. Time is an argument.
//! - The crate `sluicegate` does not know this one, and each has its own events.
//! - User code (observers, wakers, classifiers, clocks that panic) never runs under a lock of a
//!   breaker or a queue. The exception is [`bulkhead::Adapt`], which runs under a lock of its own.
//!   Whatever was granted has an owner before user code runs, so a panic loses nothing.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot continue fails"))]

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

/// Guides: from the problem to the line of code.
pub mod guide {
    #[doc = include_str!("../docs/guard.md")]
    pub mod guard {}

    #[doc = include_str!("../docs/breaker.md")]
    pub mod breaker {}

    #[doc = include_str!("../docs/adaptive.md")]
    pub mod adaptive {}
}
