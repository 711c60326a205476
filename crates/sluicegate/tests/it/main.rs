//! The limit grammar, the calendar, and limiters on their store in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bounded;
mod calendar;
mod change;
mod grammar;
mod limiter;
mod mistakes;
mod reserve;
mod shared;
mod smooth;
mod threads;
mod together;
#[cfg(not(loom))]
mod wait;
