//! The layer in front of services of our own, of axum's router, and over real sockets.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod addresses;
mod bulkhead;
mod concurrency;
mod example;
mod fields;
mod grpc;
mod guard;
mod on_missing_key;
mod policies;
mod redis;
mod router;
mod service;
mod settle;
mod shadow;
mod sockets;
mod structured;
mod support;
mod waiting;
