//! Limits over traces in virtual time: nothing sleeps, and the result is the same every time.
//!
//! [`Replay`] keeps every key's state and asks the core. [`replay::run`] is `sluice replay`: calls
//! in as CSV ([`trace`]), decisions out as CSV.
//!
//! [`traffic`] are calls from a workload, a trace or a log; [`simulate`] tries limits on them and
//! measures what comes of it; a [`report`] is what tables and pictures are made of.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap fails the test"))]

mod buffer;
pub mod human;
pub mod overload;
mod progress;
mod records;
pub mod replay;
pub mod report;
pub mod scenarios;
pub mod simulate;
pub mod trace;
pub mod traffic;
mod values;

pub use replay::Replay;
pub use traffic::Traffic;
