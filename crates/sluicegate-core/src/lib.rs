//! The rules of rate limiting as pure functions.
//!
//! This crate decides; it does nothing else. It has no clock (the time is an argument), no I/O, no lock, no
//! `unsafe` and no dependencies. Stores keep the states it returns, protocols translate its answers.
//!
//! # How a decision is made
//!
//! Each algorithm answers what *remains* for a key at a time. A call is allowed when its cost is at most that,
//! and then it is charged. (Under [`smooth`] alone it is the time that decides.) That is all of [`Algorithm::check`]:
//!
//! ```
//! use sluicegate_core::{Algorithm, Rate, Span, Time, sliding_log::SlidingLog};
//!
//! // A user may reply 5 times in 60 seconds.
//! let replies = SlidingLog::new(Rate::new(5, Span::from_micros(60_000_000))?)?;
//! let mut harry = Default::default(); // the state of a key that has never called
//! let now = Time::from_micros(1_700_000_000_000_000).unwrap();
//!
//! let answers: Vec<bool> = (0..7).map(|_| replies.check(&mut harry, now, 1).allowed()).collect();
//! assert_eq!(answers, [true, true, true, true, true, false, false]);
//! # Ok::<(), sluicegate_core::bounds::OutOfBounds>(())
//! ```
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | key | who or what is limited; this crate sees only a key's state |
//! | cost | how much of the limit one call takes |
//! | limit | an algorithm with its numbers |
//! | state | what is kept for one key under one limit: a 16-byte [`Cell`], or a log |
//! | decision | the answer: a [`Decision`]; a "no" is an answer, never an error |
//! | remaining | the cost that would still be allowed now |
//! | `retry_after` | when denied: the shortest wait after which the same call would be allowed |
//! | `reset_after` | how long until the key is as good as new |
//! | delay | how long an allowed caller waits before acting |
//! | receipt | names a reservation, which can be cancelled, or settled for what was really used |
//!
//! # Which algorithm when
//!
//! | you want | take | state |
//! |---|---|---|
//! | a steady rate with room for bursts | [`token_bucket`] | 16 bytes |
//! | the same, thought of as a funnel | [`leaky_bucket`] | 16 bytes |
//! | not again within some time | [`min_interval`] | 16 bytes |
//! | callers that leave one after another, evenly | [`pacer`] | 16 bytes |
//! | so many a day, a month, an hour on the clock | [`fixed_window`] | 16 bytes |
//! | never more than so many in *any* period, exactly | [`sliding_log`] | 16 bytes a call |
//! | nearly that, in constant memory | [`sliding_window`] | 16 bytes |
//! | Guava's `RateLimiter`: callers wait, and the next one pays | [`smooth`] | 16 bytes |
//! | so many at once, not so many in a time | [`concurrency`] | 32 bytes a lease |
//!
//! # Map
//!
//! [`time`] and [`bounds`] check numbers once, at the edge; [`algorithm`] says what an algorithm answers;
//! one file an algorithm answers it (the four buckets share [`gcra`]); [`verbs`] turns the answers into what callers
//! do with one limit, [`several`] with a list of them; [`receipts`] remembers reservations ([`pile`] says what they give back) and
//! [`account`] is one key with both; [`line`](mod@line) is those who wait for their turn; [`cell_limit`] and [`any`] hold a limit whose kind is
//! known only at run time.
//!
//! Beside rates: [`concurrency`] is leases, so many at once.

#![no_std]
#![deny(clippy::float_arithmetic, clippy::as_conversions, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod account;
pub mod algorithm;
pub mod any;
pub mod bounds;
pub mod cell;
pub mod cell_limit;
pub mod concurrency;
pub mod decision;
pub mod fixed_window;
pub mod gcra;
pub mod in_order;
pub mod leaky_bucket;
pub mod line;
pub mod min_interval;
pub mod pacer;
pub mod pile;
pub mod receipts;
pub mod several;
pub mod sliding_log;
pub mod sliding_window;
pub mod smooth;
pub mod time;
pub mod token_bucket;
pub mod verbs;

pub use account::Account;
pub use algorithm::Algorithm;
pub use any::{AnyLimit, AnyState};
pub use bounds::Rate;
pub use cell::Cell;
pub use cell_limit::CellLimit;
pub use concurrency::Concurrency;
pub use decision::{Decision, RetryAfter};
pub use time::{Span, Time};
