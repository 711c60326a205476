//! Sluicegate as a service: RESP for every Redis client, HTTP/JSON, rules from a file, metrics.
//!
//! ```text
//! bytes ─▶ codec ─▶ request ─▶ engine ─▶ store ─▶ core ─▶ decision ─▶ codec ─▶ bytes
//!          resp/               engine/                                resp/
//!          http/                                                      http/
//! ```
//!
//! Protocols translate bytes and decide nothing. Every call goes through [`engine::Engine`], so the
//! same call has the same answer over every protocol.
//!
//! # Invariants
//!
//! - Nothing that a client announces is trusted. Memory is allocated for bytes that have arrived,
//!   and every bound has a name. Bounds that are settings are in `connection_limits.rs` and in
//!   [`engine::Settings`]; the others are constants beside the code that enforces them. A test
//!   exceeds each bound that a client can observe.
//! - A client that is slow, silent or gone delays no other client.
//! - A lease belongs to its client once the system has taken all of the reply. Until then the lease
//!   is released if the client disconnects.
//! - No metric label comes from a client. Passwords and keys appear in no log line and no metric.
//! - The clock is read once per batch of commands.
//! - On any address but loopback the server starts only with a password and TLS, or with
//!   `--insecure`.
//! - A stop answers what has arrived. A reload applies a whole configuration, or nothing of it.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot continue fails"))]

pub mod auth;
mod clock_watch;
pub mod config;
pub mod connection_limits;
pub mod engine;
mod exposure;
mod http;
mod log;
pub mod metrics;
pub mod net;
pub mod protocol;
mod reload;
#[doc(hidden)] // For the tests and the fuzzer.
pub mod resp;
mod run;
pub mod server;
pub mod service;
mod signals;
mod wire;

pub use run::{Files, run, validate};
