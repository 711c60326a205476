//! The same limits shared by many processes: their keys live in Redis or Valkey, on one server, with replicas, or in a cluster.
//!
//! A limiter here gives the same answers as [`sluicegate::Limiter`]. A script in the store decides and writes, in one atomic step
//! and one round trip; it tells what the key's state was, and the same code as in memory works out the rest of the answer from that.
//!
//! ```text
//! RedisLimiter ──▶ names, encode: one EVALSHA ──▶ link: single, Sentinel or cluster ──▶ lua/*.lua: decide, write, tell
//!    Answer    ◀── sluicegate-core on the state that it was ◀── script_reply ◀─────────────────────────────┘
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on fails"))]

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
pub use failure::{ConnectError, OnStoreFailure, RedisBuildError, RedisCheckAllError};
pub use limiter::{
    RedisCall, RedisLimiter, RedisLimiterBuilder, RedisReservation, check_all, check_all_at, check_each,
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
