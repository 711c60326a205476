//! Limits shared by many processes: their keys are in Redis or Valkey, on one server, under
//! Sentinel or in a cluster.
//!
//! A limiter moves here from [`sluicegate::Limiter`] in one line; the methods are the same, with
//! `.await?`:
//!
//! ```no_run
//! use sluicegate_redis::{RedisLimiter, RedisStore};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1").await?;
//!
//! // before: let limiter = sluicegate::Limiter::new("token-bucket 10/s burst=50")?;
//! let limiter =
//!     RedisLimiter::builder("token-bucket 10/s burst=50").in_store(&store, "api").build()?;
//!
//! // before: limiter.check("user:42").allowed()
//! assert!(limiter.check("user:42").await?.allowed());
//! # Ok(())
//! # }
//! ```
//!
//! A script in the store decides and writes, in one atomic step and one round trip. It returns the
//! key's state, from which the core recomputes the decision, so that it has the same fields as in
//! memory.
//!
//! ```text
//! RedisLimiter ──▶ names, encode ──▶ link: single, Sentinel, cluster ──▶ lua: decide, write
//!    Answer    ◀── sluicegate-core recomputes the decision ◀── limiter/reply ◀──┘
//! ```
//!
//! Invariants:
//! - **A script only decides and writes.** The core computes all other fields of the decision from
//!   the state in the reply, and must make the same decision. `lua/check/` has the checks under one
//!   limit, written for speed; the other files have the same rules as functions for all other
//!   verbs, named after their Rust counterparts. Tests compare both with the model.
//! - **In a script every number is below 2^53.** The time is the store's unless the caller gives
//!   one, and every write has an expiry that no decision depends on. Scripts that only return cost
//!   or renew leases run even if the store is out of memory.
//! - **A script call that may have run is never retried** (`link.rs`).

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap fails the test"))]

mod backend;
#[doc(hidden)]
pub mod bench;
mod denial_cache;
mod encode;
mod failure;
mod fallback;
mod in_flight;
mod limiter;
mod link;
mod names;
mod receipt;
mod round_trip;
mod script;
mod scripts;
mod semaphore;
mod stats;
mod store;

pub use denial_cache::{DENIAL_CACHE_AGE_MAX, DENIAL_CACHE_KEYS_MAX};
pub use failure::{ConnectError, OnStoreFailure};
pub use limiter::{
    RedisCall, RedisLimiter, RedisLimiterBuilder, RedisReservation, cancel_all, check_all, check_all_at,
    check_each, extend_all, reserve_all, reserve_all_at, reserve_all_each, reserve_all_each_at, settle_all,
};
pub use link::{NodeHealth, without_password};
pub use receipt::StoredReceipt;
pub use semaphore::{
    LeaseLost, POLLS_PER_SECOND_MAX, RedisLease, RedisSemaphore, RedisSemaphoreBuilder, WAITER_TTL,
    WAITER_TTL_MAX, WAITERS_MAX,
};
pub use stats::{Failures, RedisStats};
pub use store::{
    DEADLINE_DEFAULT, KEY_PREFIX_DEFAULT, LOCAL_KEYS_DEFAULT, LOCAL_LEASES_DEFAULT, RedisStore,
    RedisStoreBuilder,
};
