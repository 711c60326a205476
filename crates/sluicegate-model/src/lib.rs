//! A slow, obviously correct model of the limits, and of a circuit breaker: [`Model`] for one key
//! under one or more rules, [`Keys`] for several keys and the receipts over them. [`Keys`] defines
//! what the specification leaves open.
//!
//! Tests run the same calls through this model and the fast code, and compare every field. The
//! model takes the most literal path to each decision, not the fastest. A rule only says whether it
//! allows a call at a given moment. Everything else that is reported (how much remains, how long to
//! wait) is *found by search*, by asking that one question over and over. There is no formula for a
//! wait in this crate, so none can be wrong in the same way as in the fast code.
//!
//! **Invariant: the model shares no code with what it judges.** It has no dependencies. `smooth`,
//! where a search is impossible, follows Guava's source statement by statement, and the conformance
//! suite also compares it with recordings of Guava itself.
//!
//! All arithmetic is on integers; fractions of a token are multiplied by their denominator. The
//! exceptions are `smooth`, whose doubles are part of its promise, and [`adaptive`] concurrency,
//! which Netflix computes in doubles and the fast code does not.
//!
//! ```
//! use sluicegate_model::{Model, RetryAfter, Rule};
//!
//! let rule = Rule::SlidingLog { count: 5, period: 60_000_000, count_all: false };
//! let mut model = Model::new(vec![rule]);
//! assert!(model.check(0, 5).allowed);
//! let denied = model.check(1_000_000, 1);
//! assert_eq!(denied.retry_after, Some(RetryAfter::After(59_000_000)));
//! ```

#![forbid(unsafe_code)]

pub mod adaptive;
mod algorithm;
mod breaker;
mod bucket;
mod change;
mod decision;
mod fixed_window;
mod history;
mod key;
mod keys;
mod leases;
mod model;
mod receipt;
mod rollback;
mod rule;
mod search;
mod sliding_log;
mod sliding_window;
mod smooth;
mod state;

pub use breaker::{
    BreakerCounts, BreakerDecision, BreakerEvent, BreakerModel, BreakerOutcome, BreakerRule, BreakerState,
    BreakerTotals, BreakerWindow,
};
pub use decision::{Answer, Decision, ReceiptId, Rejected, RetryAfter, UNLIMITED, Usage, Window};
pub use keys::{Call, KeyId, Keys, Terms};
pub use leases::{Concurrency, LeaseNumber, Leases};
pub use model::Model;
pub use receipt::{Then, Ttl};
pub use rule::{Initial, Permits, Rule, Smooth, Windows};
