//! Is it right? The same questions to everything that answers them, and the answers of a model.
//!
//! A [`Subject`] is whatever offers check-at-a-time: the core, a store, a server behind a protocol. It joins with one
//! line and is asked all of it:
//!
//! ```
//! use sluicegate_conformance::{Answer, InCore, suite};
//!
//! let report = suite(|limits, start| InCore::new(limits, start)).unwrap();
//! assert!(report.checks > 1_000);
//! ```
//!
//! - [`vectors`]: cases in a language-neutral CSV, with every field of every answer.
//! - [`random`]: limits and traces made up from a seed, extremes included.
//! - [`guava`]: calls that Guava itself has answered, for `smooth`.
//! - [`oracle`]: the slow model's answers to them. The model is a crate without dependencies, written from the
//!   specification; nothing of the fast code is in it.

mod compare;
mod in_backend;
mod in_core;
mod subject;
mod verbs;

pub mod guava;
pub mod oracle;
pub mod random;
pub mod vectors;

pub use compare::{Mismatch, Report, random_traces, suite};
pub use in_backend::{AtOnce, InBackend, Wait};
pub use in_core::{AccountInCore, InCore};
pub use subject::{Answer, Subject};
pub use verbs::{OneKey, random_verbs};
