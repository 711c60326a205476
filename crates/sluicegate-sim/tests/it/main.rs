//! The replay engine: conformance, scenarios, traces and logs good and bad.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod conformance;
mod csv_traffic;
mod fuzz;
mod logs;
mod overload;
mod scenarios;
mod simulations;
mod traces;
mod workloads;
