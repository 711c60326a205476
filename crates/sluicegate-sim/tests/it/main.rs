//! The replay engine: conformance, scenarios, traces good and bad.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conformance;
mod fuzz;
mod scenarios;
mod traces;
