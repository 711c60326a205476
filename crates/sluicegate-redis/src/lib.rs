//! The same limits shared by many processes: their keys live in Redis or Valkey, on one server, with replicas, or in a cluster.
//!
//! A limiter here gives the same answers as [`sluicegate::Limiter`]. A script in the store decides and writes, in one atomic step
//! and one trip; it tells what the key's state was, and the same code as in memory works out the rest of the answer from that.
//!
//! ```text
//! RedisLimiter ──▶ names, shape: one EVALSHA ──▶ link: single, Sentinel or cluster ──▶ lua/*.lua: decide, write, tell
//!    Answer    ◀── sluicegate-core on the state that it was ◀── reply ◀───────────────────────────────────┘
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on fails"))]

mod answer;
#[doc(hidden)]
pub mod bench;
mod failure;
mod limiter;
mod link;
mod names;
mod receipt;
mod remembered;
mod reply;
mod script;
mod scripts;
mod semaphore;
mod shape;
mod store;
mod turn;

pub use answer::{Answer, Source};
pub use failure::{ConnectError, OnStoreFailure, StoreFailure};
pub use limiter::{
    AskError, BuildError, CALLS_MAX, Call, RedisLimiter, RedisLimiterBuilder, Reservation, TogetherError,
    check_all, check_each,
};
pub use link::{NodeHealth, without_password};
pub use receipt::{BadReceipt, Receipt};
pub use remembered::{REMEMBERED_KEYS_MAX, REMEMBERED_MAX};
pub use semaphore::{
    ASKS_A_SECOND_MAX, BadLeaseId, LeaseId, LeaseLost, RedisSemaphore, RedisSemaphoreBuilder, SharedGrant,
    SharedLease, TICKET_LIFE, TICKET_LIFE_MAX, WAITING_MAX,
};
pub use sluicegate::Refusal;
pub use store::{
    DEADLINE_DEFAULT, Failures, KEY_PREFIX_DEFAULT, LOCAL_KEYS_DEFAULT, LOCAL_LEASES_DEFAULT, RedisStore,
    RedisStoreBuilder,
};
pub use turn::Turn;
