//! The core and the library compared with the model: vectors, random traces, random verbs.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod adaptive;
mod agreement;
mod all_of;
mod breaker;
mod changes;
mod guava;
mod leases;
mod library;
mod properties;
mod receipts;
mod shared;
mod spelling;
mod typed;
mod vectors;
