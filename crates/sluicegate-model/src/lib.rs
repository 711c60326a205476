//! A slow, obviously right model of the limits, for one key under one or more rules, and of a circuit breaker.
//!
//! Tests run the same calls through this model and through the fast code, and compare every field. So the
//! model takes the most literal way to each answer rather than the quickest: a rule only says which calls it
//! would allow at which moment, and everything a caller is told (how much remains, how long to wait) is
//! *searched for* by asking that question again and again. No formula for a wait stands anywhere in here,
//! so none can be wrong in the same way as in the fast code.
//!
//! All arithmetic is on whole numbers; fractions of a token are kept multiplied by their denominator. The
//! exceptions are Guava's limiter, whose doubles are part of what it promises: that is written down as Guava has it; and
//! [`adaptive`] concurrency, which Netflix computes in doubles and the fast code does not.
//!
//! ```
//! use sluicegate_model::{Model, RetryAfter, Rule};
//!
//! let mut model = Model::new(vec![Rule::SlidingLog { count: 5, period: 60_000_000, count_all: false }]);
//! assert!(model.check(0, 5).allowed);
//! let denied = model.check(1_000_000, 1);
//! assert_eq!(denied.retry_after, Some(RetryAfter::After(59_000_000)));
//! ```

#![forbid(unsafe_code)]

pub mod adaptive;
mod answer;
mod breaker;
mod bucket;
mod cut;
mod fixed_window;
mod gate;
mod history;
mod leases;
mod model;
mod rule;
mod search;
mod sliding_log;
mod sliding_window;
mod smooth;

pub use answer::{Answer, ReceiptId, RetryAfter};
pub use breaker::{
    BreakerAnswer, BreakerCounts, BreakerEnd, BreakerModel, BreakerNews, BreakerRule, BreakerState,
    BreakerTotals, BreakerWindow,
};
pub use leases::{Concurrency, LeaseNumber, Leases};
pub use model::Model;
pub use rule::{Initial, Permits, Rule, Smooth, Windows};
