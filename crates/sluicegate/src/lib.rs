//! Rate limits as one readable line of text, decided exactly, for any number of keys.
//!
//! ```
//! use sluicegate::Limiter;
//!
//! let replies = Limiter::new("sliding-log 5/60s")?;
//! let allowed = (0..20).filter(|_| replies.check("user:42").allowed()).count();
//! assert_eq!(allowed, 5);
//! # Ok::<(), sluicegate::BuildError>(())
//! ```
//!
//! The [`guide`] leads from the problem to the code: which algorithm when, keys, several limits,
//! denials, reservations, memory, tests.
//!
//! # The limiter
//!
//! The root of the crate is the limiter. A [`Limiter`] decides calls per key, in bounded memory; a
//! [`Gate`] is a limiter without keys; [`check_all`] charges several of them all or nothing. A call
//! results in a [`Decision`], and a denial is a decision, never an error. A [`Limit`] is a line of
//! text, or is built from numbers:
//!
//! ```
//! use sluicegate::Limit;
//! use sluicegate::limit::per_minute;
//!
//! let limit: Limit = "token-bucket 30/60s burst=15".parse()?;
//! assert_eq!(limit, Limit::token_bucket(30, per_minute()).burst(15).build()?);
//! assert_eq!(limit.to_string(), "token-bucket 30/min burst=15");
//!
//! let error = "sliding-log 5/60x".parse::<Limit>().unwrap_err();
//! assert!(error.to_string().starts_with(r#"sliding-log 5/60x: unknown unit "x"; use us ms s min h d"#));
//! # Ok::<(), sluicegate::LimitError>(())
//! ```
//!
//! # Modules
//!
//! | module | for |
//! |---|---|
//! | [`limit`] | limits as data: their parts, bounds and [typed](limit::typed) construction |
//! | [`wait`] | calls that wait in a queue instead of being denied: [`Limiter::acquire`] |
//! | [`semaphore`] | concurrency limits: leases that expire if their holder crashes |
//! | [`clock`] | the system's clock, and clocks for tests |
//! | [`backend`] | the traits that memory and Redis implement, and their answers |
//! | [`http_fields`] | the header fields `RateLimit`, `RateLimit-Policy` and `Retry-After` |
//!
//! # Errors
//!
//! [`LimitError`]: a text is not a limit, or limits do not go together. [`BuildError`]: a limiter
//! cannot be built or changed. [`VerbError`]: a limit does not support a verb, or its arguments do
//! not fit; a check cannot fail. [`backend::BackendError`] adds the failures of a shared store.
//! [`Denied`] is a denial as an error, for callers that use `?`.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `derive`: `#[derive(Key)]` for structs and enums.
//! - `serde`: limits, receipts and leases as text, decisions and answers as data.
//! - `tokio`: `clock::TokioClock`, for tests that pause the runtime. Waiting needs no runtime.
//!
//! # Sister crates
//!
//! `sluicegate-redis` shares limits between processes, `sluicegate-tower` puts them before a
//! service, `sluicegate-guard` has circuit breakers, bulkheads, retries and adaptive limits for
//! calls to a dependency, and `sluicegate-core` holds the algorithms as pure functions.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap fails the test"))]

mod answer;
pub mod backend;
mod calendar;
mod callbacks;
pub mod clock;
#[cfg(feature = "serde")]
mod data;
mod event;
mod gate;
mod grammar;
pub mod http_fields;
mod ids;
mod key;
pub mod limit;
mod limiter;
mod memory_store;
mod seal;
pub mod semaphore;
mod store;
mod store_failure;
mod sync;
pub mod wait;

pub use event::Event;
pub use gate::Gate;
pub use ids::Receipt;
pub use key::{Key, KeyWriter};
pub use limit::{Limit, LimitError};
pub use limiter::{
    BuildError, CALLS_MAX, Call, HashedKey, IntoLimits, Limiter, LimiterBuilder, MAX_KEYS_DEFAULT,
    MAX_KEYS_MAX, MAX_LOG_ENTRIES_DEFAULT, MAX_LOG_ENTRIES_MAX, MAX_RECEIPTS_DEFAULT, MAX_RECEIPTS_MAX,
    Observer, Reservation, ReserveOptions, StoreStats, TTL_MAX, TTL_MIN, VerbError, check_all, check_all_at,
    check_all_each, check_all_each_at, reserve_all, reserve_all_at, reserve_all_each, reserve_all_each_at,
};
pub use memory_store::{MemoryStore, MemoryStoreBuilder};
pub use sluicegate_core::receipts::{Then, Ttl};
pub use sluicegate_core::verbs::Unsupported;
pub use sluicegate_core::{Decision, Denied, FullPool, RetryAfter, Span, Time, Usage, Window};
#[cfg(feature = "derive")]
#[doc = include_str!("../docs/derive.md")]
pub use sluicegate_derive::Key;
pub use store::OnFull;

/// For the other crates of this workspace, which are released together with this one. It may change
/// without notice.
#[doc(hidden)]
pub mod internal {
    pub use crate::callbacks::Callbacks;
    pub use crate::clock::alarm::AlarmHandler;
    pub use crate::clock::alarms::Alarms;
    pub use crate::clock::any::AnyClock;
    pub use crate::clock::interval::Interval;
    pub use crate::key::{ByFingerprint, Fingerprint, Seeds, raw as raw_key};
    pub use crate::limit::print::unit;
    pub use crate::limiter::{checked_ttl, within};
    pub use crate::wait::acquire::MaxWait;
    pub use crate::wait::park::block_on;
    pub use crate::wait::queues::wake_all;

    /// The parts of the limit grammar.
    pub mod grammar {
        pub use crate::grammar::*;
    }

    /// Locks and atomics, which are loom's under the model checker.
    pub mod sync {
        pub use crate::sync::*;
    }

    use crate::Time;
    use crate::clock::Alarm;
    use std::sync::Weak;

    /// Creates an alarm for a time, and the handler that it wakes.
    pub fn alarm(wakes: Weak<dyn AlarmHandler>, at: Time) -> Alarm {
        Alarm::new(wakes, at)
    }
}

/// From the problem to the code.
#[doc = include_str!("../docs/guide.md")]
pub mod guide {
    #[doc = include_str!("../docs/waiting.md")]
    pub mod waiting {}

    #[doc = include_str!("../docs/concurrency.md")]
    pub mod concurrency {}

    #[doc = include_str!("../docs/pacing.md")]
    pub mod pacing {}

    #[doc = include_str!("../docs/smooth.md")]
    pub mod smooth {}
}
