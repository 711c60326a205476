//! The limit grammar and the calendar.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calendar;
mod grammar;
mod mistakes;
