//! Sluicegate: rate limits as one readable line of text, decided exactly, for as many keys as call.
//!
//! ```
//! use sluicegate::Limiter;
//!
//! let replies = Limiter::new("sliding-log 5/60s")?;
//! let allowed = (0..20).filter(|_| replies.check("Harry").allowed()).count();
//! assert_eq!(allowed, 5);
//! # Ok::<(), sluicegate::BuildError>(())
//! ```
//!
//! - The [`guide`] goes from the problem to the line of code: which algorithm when, keys, several limits, what to do with a
//!   no, reservations, memory, tests.
//! - [`Limiter::acquire`] waits for its turn instead of being told no: [`guide::waiting`].
//! - [`Limiter`] is keyed and bounded in memory, [`Gate`] the same without keys, [`check_all`] charges several of them all or
//!   nothing.
//! - [`Semaphore`] limits how many are at work at once, by leases that lapse: [`guide::concurrency`].
//! - Circuit breakers, bulkheads, timeouts, retries and adaptive limits around what a service calls are
//!   the crate `sluicegate-guard`.
//! - [`Limit`] is the line of text as data. A mistake in it gets one line that points at the word:
//!
//! ```
//! use sluicegate::Limit;
//!
//! let limit: Limit = "token-bucket 30/60s burst=15".parse()?;
//! assert_eq!(limit.to_string(), "token-bucket 30/min burst=15");
//!
//! let mistake = "sliding-log 5/60x".parse::<Limit>().unwrap_err();
//! assert!(mistake.to_string().starts_with(r#"sliding-log 5/60x: unknown unit "x"; use us ms s min h d"#));
//! # Ok::<(), sluicegate::LimitError>(())
//! ```
//!
//! - Deciding is the work of [`core`], a crate of pure functions without clock, lock or I/O.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on fails"))]

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
    MAX_KEYS_MAX, MAX_RECEIPTS_DEFAULT, MAX_RECEIPTS_MAX, Observer, Reservation, StoreStats, VerbError,
    check_all, check_all_at, check_all_each, check_all_each_at,
};
pub use memory_store::{MemoryStore, MemoryStoreBuilder};
pub use sluicegate_core::{Decision, Denied, RetryAfter, Span, Time};
#[cfg(feature = "derive")]
pub use sluicegate_derive::Key;
pub use store::OnFull;

/// For the other crates of this workspace, which are released together with this one: no promise of stability.
#[doc(hidden)]
pub mod internal {
    pub use crate::callbacks::Callbacks;
    pub use crate::clock::alarm::AlarmHandler;
    pub use crate::clock::alarms::Alarms;
    pub use crate::clock::any::AnyClock;
    pub use crate::clock::interval::Interval;
    pub use crate::key::{ByFingerprint, Fingerprint, Seeds, raw as raw_key};
    pub use crate::limit::print::unit;
    pub use crate::limiter::within;
    pub use crate::wait::acquire::MaxWait;
    pub use crate::wait::park::block_on;
    pub use crate::wait::queues::wake_all;

    /// How lines of text are read.
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

    /// An alarm that was set for a time, and whom it wakes.
    pub fn alarm(wakes: Weak<dyn AlarmHandler>, at: Time) -> Alarm {
        Alarm::new(wakes, at)
    }
}

/// From the problem to the line of code.
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
