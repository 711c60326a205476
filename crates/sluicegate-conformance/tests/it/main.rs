//! The core against the model: vectors, random traces, random verbs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agreement;
mod changes;
mod properties;
mod receipts;
mod several;
mod vectors;
