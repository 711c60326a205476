//! Breakers, bulkheads, adaptive limits, timeouts, retries and guards.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]
#![cfg(not(loom))]

mod adaptive;
mod breaker;
mod bulkhead;
mod guard;
#[path = "../../../sluicegate/tests/it/wall_clock.rs"]
mod wall_clock;
