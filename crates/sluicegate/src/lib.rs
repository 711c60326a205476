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
//! - [`Guard`] keeps one failure from becoming many: fallback, retries, breaker, bulkhead and timeout around a call: [`guide::guard`]. [`Breaker`] stops calls
//!   to what keeps failing ([`guide::breaker`]; [`Breakers`] is one for each key), [`Bulkhead`] lets so many in at once, and can find out how many
//!   itself: [`guide::adaptive`].
//! - [`Limit`] is the line of text as data. A mistake in it gets one line that points at the word:
//!
//! ```
//! use sluicegate::Limit;
//!
//! let limit: Limit = "token-bucket 30/60s burst=15".parse()?;
//! assert_eq!(limit.to_string(), "token-bucket 30/m burst=15");
//!
//! let mistake = "sliding-log 5/60x".parse::<Limit>().unwrap_err();
//! assert!(mistake.to_string().starts_with(r#"sliding-log 5/60x: unknown unit "x"; use us ms s m h d"#));
//! # Ok::<(), sluicegate::LimitError>(())
//! ```
//!
//! - Deciding is the work of [`core`], a crate of pure functions without clock, lock or I/O.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on fails"))]

pub use sluicegate_core as core;

mod adaptive;
mod answer;
pub mod backend;
pub mod breaker;
pub mod bulkhead;
mod calendar;
mod callbacks;
mod clock;
mod event;
mod gate;
#[doc(hidden)]
pub mod grammar;
pub mod guard;
pub mod http_fields;
mod ids;
mod key;
mod limit;
mod limiter;
mod seal;
mod semaphore;
mod shared;
mod store;
mod store_failure;
mod sync;
mod timeout;
mod wait;

pub use adaptive::AdaptiveLimit;
pub use answer::{Answer, Source};
pub use backend::{Backend, BackendError, LeaseBackend, Pending};
pub use breaker::{Breaker, Breakers, Outcome};
pub use bulkhead::Bulkhead;
pub use calendar::{CalendarUnit, Zone};
#[cfg(all(feature = "tokio", not(loom)))]
pub use clock::TokioClock;
pub use clock::{Alarm, Clock, Delay, ManualClock, SystemClock};
pub use core::verbs::NotOffered;
pub use core::{Decision, RetryAfter, Span, Time};
pub use event::Event;
pub use gate::Gate;
pub use guard::Guard;
pub use ids::{BadLeaseId, BadReceipt, LeaseId, Receipt};
#[doc(hidden)]
pub use key::raw as raw_key;
pub use key::{Key, KeyWriter};
pub use limit::{Bounds, Initial, Limit, LimitError, ListError, Spec, WindowSpec};
pub use limiter::{
    BuildError, Builder, CALLS_MAX, Call, ChangeError, HashedKey, IntoLimits, Limiter, MAX_KEYS_DEFAULT,
    MAX_KEYS_MAX, MAX_LINE_DEFAULT, MAX_RECEIPTS_DEFAULT, MAX_RECEIPTS_MAX, MAX_WAITING_DEFAULT,
    MAX_WAITING_MAX, Observer, Reservation, ReserveError, Stats, TogetherError, check_all, check_all_at,
    check_all_each_at,
};
pub use semaphore::{
    AcquireLease, Grant, Lease, LeaseScope, MAX_LEASES_DEFAULT, MAX_LEASES_MAX, Semaphore, SemaphoreBuilder,
    SemaphoreStats, SharedLeases, SharedLeasesBuilder,
};
pub use shared::{SharedStore, SharedStoreBuilder};
pub use store::OnFull;
pub use store_failure::StoreFailure;
pub use timeout::{TimedOut, timeout, timeout_on};
pub use wait::{Acquire, Acquired, Priority, Refusal};

/// From the problem to the line of code.
#[doc = include_str!("../docs/guide.md")]
pub mod guide {
    #[doc = include_str!("../docs/waiting.md")]
    pub mod waiting {}

    #[doc = include_str!("../docs/breaker.md")]
    pub mod breaker {}

    #[doc = include_str!("../docs/concurrency.md")]
    pub mod concurrency {}

    #[doc = include_str!("../docs/pacing.md")]
    pub mod pacing {}

    #[doc = include_str!("../docs/guard.md")]
    pub mod guard {}

    #[doc = include_str!("../docs/smooth.md")]
    pub mod smooth {}

    #[doc = include_str!("../docs/adaptive.md")]
    pub mod adaptive {}
}

/// The README's code is compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
