//! The core and the library against the model: vectors, random traces, random verbs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod adaptive;
mod agreement;
mod breaker;
mod changes;
mod guava;
mod leases;
mod library;
mod properties;
mod receipts;
mod several;
mod shared;
mod spelling;
mod typed;
mod vectors;
