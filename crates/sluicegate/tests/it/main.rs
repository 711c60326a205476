//! The limit grammar, the calendar, and limiters on their store in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bounded;
mod calendar;
mod change;
mod costs;
mod grammar;
mod limiter;
mod mistakes;
mod reserve;
#[cfg(not(loom))]
mod semaphore;
mod shared;
mod smooth;
mod threads;
mod together;
#[cfg(not(loom))]
mod wait;
#[cfg(not(loom))]
mod wall;
