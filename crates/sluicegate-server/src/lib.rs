//! Sluicegate as a service: RESP for every Redis client, HTTP/JSON, rules from a file, metrics.
//!
//! ```text
//! bytes ─▶ codec ─▶ request ─▶ engine ─▶ store ─▶ core ─▶ decision ─▶ codec ─▶ bytes
//!          resp/               engine/                                resp/
//!          http/                                                      http/
//! ```
//!
//! Protocols translate bytes and decide nothing; whatever they are asked enters through [`engine::Engine`], so that the
//! same question has the same answer everywhere.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on fails"))]

pub mod auth;
pub mod client_limits;
pub mod config;
pub mod engine;
mod http;
mod log;
pub mod metrics;
pub mod net;
pub mod protocol;
#[doc(hidden)] // For the tests and the fuzzer.
pub mod resp;
mod run;
pub mod safety;
pub mod server;
pub mod service;
mod signals;
mod wire;

pub use run::run;
