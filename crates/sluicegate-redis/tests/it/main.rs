//! The shared store against the model, on real servers, and under faults.

#![allow(missing_docs, clippy::unwrap_used)]

mod atomic;
mod bounded_budgets;
mod bounded_leases;
mod bounded_logs;
mod bounded_work;
mod budgets;
mod changes;
mod damaged;
mod denial_cache;
mod faults;
mod in_redis;
mod like_memory;
mod long_keys;
mod long_logs;
mod many_receipts;
mod order;
mod parity;
mod permissions;
mod rolling_change;
mod semaphore;
mod several_keys;
mod slots;
mod support;
mod waiting;
