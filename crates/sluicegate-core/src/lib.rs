//! The rules of rate limiting as pure functions.
//!
//! This crate decides, and does nothing else. Stores keep the states that it returns; protocols
//! translate its decisions.
//!
//! # How a decision is made
//!
//! Each algorithm computes what *remains* for a key at a given time. A call is allowed if its cost
//! is at most that, and is then charged. ([`smooth`] alone decides by time instead.) That is all of
//! [`Algorithm::check`]:
//!
//! ```
//! use sluicegate_core::{Algorithm, Rate, Span, Time, sliding_log::SlidingLog};
//!
//! // A user may reply 5 times in 60 seconds.
//! let replies = SlidingLog::new(Rate::new(5, Span::from_micros(60_000_000))?)?;
//! let mut user = Default::default(); // the state of an unseen key
//! let now = Time::from_micros(1_700_000_000_000_000).unwrap();
//!
//! let allowed: Vec<bool> = (0..7).map(|_| replies.check(&mut user, now, 1).allowed()).collect();
//! assert_eq!(allowed, [true, true, true, true, true, false, false]);
//! # Ok::<(), sluicegate_core::bounds::OutOfBounds>(())
//! ```
//!
//! # Terms
//!
//! | term | meaning |
//! |---|---|
//! | key | who or what is limited; this crate sees only a key's state |
//! | cost | how much of the limit one call consumes |
//! | limit | an algorithm with its parameters |
//! | state | what is kept per key and limit: a 16-byte [`Cell`], or a log |
//! | decision | the result of a call, a [`Decision`]; a denial is a decision, never an error |
//! | remaining | the cost that would still be allowed now |
//! | `retry_after` | if denied: the shortest wait after which the same call would be allowed |
//! | `reset_after` | the time until the key is fully recovered |
//! | delay | how long the caller must wait before acting on an allowed call |
//! | receipt | names a reservation, which can be cancelled or settled |
//! | unseen | said of a key that has never called, or whose state was dropped after it recovered |
//!
//! # Which algorithm when
//!
//! | you want | use | state per key |
//! |---|---|---|
//! | a steady rate with room for bursts | [`token_bucket`] | 16 bytes |
//! | the same, seen as a funnel | [`leaky_bucket`] | 16 bytes |
//! | a pause between two calls | [`min_interval`] | 16 bytes |
//! | calls that leave evenly spaced | [`pacer`] | 16 bytes |
//! | a quota per hour, day or month | [`fixed_window`] | 16 bytes |
//! | at most N in *any* period, exactly | [`sliding_log`] | 16 bytes per call |
//! | close to that, in constant memory | [`sliding_window`] | 16 bytes |
//! | Guava's `RateLimiter` | [`smooth`] | 16 bytes |
//! | at most N at once, not per period | [`concurrency`] | 32 bytes per lease |
//!
//! # Map
//!
//! [`time`] and [`bounds`] check values once, at the edge. [`algorithm`] is the trait that every
//! algorithm implements, one file each; the four buckets share [`gcra`]. [`verbs`] turns the trait
//! into what callers do with one limit, [`all_of`] with a list of limits. [`receipts`] keeps open
//! reservations, and [`rollback`] returns their charges. An [`Account`] is one key with all of
//! this. [`queue`] holds waiters. [`cell_limit`] and [`any_limit`] are limits whose algorithm is
//! known only at run time. Modules marked `#[doc(hidden)]` serve the sister crates, which are
//! released together with this one, and may change without notice.
//!
//! # Invariants
//!
//! - **No dependencies, clock, I/O, lock, `unsafe`, floats or unchecked casts.** Time is an
//!   argument. The empty `[dependencies]` is the architecture; only the feature `serde`, off by
//!   default, adds one. The one exception is `smooth.rs`, which uses Guava's doubles and Java's two
//!   conversions, since their rounding is what it promises.
//! - **Bounds are checked once**, when a [`Rate`], a [`Time`] or a limit is created. After that
//!   nothing fails or overflows; arithmetic that looks as if it could says why it cannot. The core
//!   panics only if a list of limits comes without a state for each limit: leaving one out would
//!   admit more.
//! - **Decisions are exact.** Nothing is rounded in a decision. Reported waits are rounded up to a
//!   whole microsecond, `remaining` is rounded down.
//! - **State is 16 bytes** for every algorithm but the log, and zeros are an unseen key. So a store
//!   may drop a fully recovered key. (A `const` assertion beside [`Cell`] keeps the size.)
//! - **Only a charge or a return changes a state.** A denial, a peek and a cost of 0 change
//!   nothing, so a glimpse of a wrong clock loses nothing. The exceptions are `count=all`, and
//!   leases: one that was observed as expired is gone for good.
//! - **Charges form a stack** ([`rollback`]), so returns in any order never return more than was
//!   charged.
//! - **The time-zone library stays outside.** A [`Calendar`](fixed_window::Calendar) only says
//!   where windows begin.
//! - **The fast path and the full one agree.** [`Algorithm::try_charge`] is what most calls need
//!   and changes nothing if it is not enough; `check_in_full` is the complete decision.
//!
//! The tests in this crate cover what one file promises. The real suite is
//! `sluicegate-conformance`, which compares every verb with a model that shares no code with this
//! crate.

#![no_std]
#![deny(clippy::float_arithmetic, clippy::as_conversions, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod account;
pub mod algorithm;
#[doc(hidden)]
pub mod all_of;
pub mod any_limit;
#[doc(hidden)]
pub mod append_mostly_map;
pub mod bounds;
pub mod cell;
pub mod cell_limit;
pub mod concurrency;
#[cfg(feature = "serde")]
mod data;
pub mod decision;
pub mod fixed_window;
pub mod gcra;
pub mod leaky_bucket;
pub mod min_interval;
pub mod pacer;
#[doc(hidden)]
pub mod queue;
#[doc(hidden)]
pub mod receipts;
#[doc(hidden)]
pub mod rescaling;
#[doc(hidden)]
pub mod rollback;
pub mod sliding_log;
pub mod sliding_window;
pub mod smooth;
pub mod time;
pub mod token_bucket;
pub mod usage;
pub mod utc_ahead;
pub mod verbs;

pub use account::Account;
pub use algorithm::Algorithm;
pub use any_limit::{AnyLimit, AnyState};
pub use bounds::Rate;
pub use cell::Cell;
pub use cell_limit::CellLimit;
pub use concurrency::Concurrency;
pub use decision::{Decision, Denied, FullPool, RetryAfter};
pub use time::{Span, Time};
pub use usage::{Usage, Window};
