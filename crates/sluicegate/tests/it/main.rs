//! The limit grammar, the calendar, limiters and semaphores in memory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod bounded;
#[cfg(not(loom))]
mod budgets;
mod calendar;
mod change;
mod check_all;
mod costs;
#[cfg(not(loom))]
mod data;
#[cfg(not(loom))]
mod derive;
mod grammar;
mod large_counts;
mod limiter;
mod log_pool;
mod memory_store;
mod published_failures;
mod reserve;
#[cfg(not(loom))]
mod semaphore;
mod shares;
mod smooth;
mod syntax_errors;
mod threads;
mod usage;
#[cfg(not(loom))]
mod utc_steps;
#[cfg(not(loom))]
mod wait;
#[cfg(not(loom))]
mod wall_clock;
