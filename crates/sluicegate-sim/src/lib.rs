//! Limits over traces in virtual time: nothing sleeps, and the result is the same every time.
//!
//! [`Replay`] is the engine: it keeps every key's state and asks the core. [`replay::run`] is `sluice replay`:
//! calls in as CSV ([`trace`]), decisions out as CSV.

mod records;
pub mod replay;
pub mod scenarios;
pub mod strip;
pub mod trace;

pub use replay::Replay;
