//! The conformance suite: the same calls to every implementation, compared with a model's
//! decisions.
//!
//! A [`Subject`] is an implementation that decides calls at given times: the core, a store, a
//! server behind a protocol. It joins with one line and runs the whole suite:
//!
//! ```
//! use sluicegate_conformance::{Fields, CoreSubject, suite};
//!
//! let report = suite(|limits, start| CoreSubject::new(limits, start)).unwrap();
//! assert!(report.checks > 1_000);
//! ```
//!
//! - [`vectors`]: cases in language-neutral CSV, with every field of every decision.
//! - [`random`]: limits and traces from a seed, extremes included.
//! - [`guava`]: calls that were decided by Guava itself, for `smooth`.
//! - [`oracle`]: the slow model's decisions. The model is a crate without dependencies, written
//!   from the specification; it shares no code with what it judges.

mod backend_subject;
mod changes;
mod compare;
mod core_subject;
mod memory_keys;
mod subject;
mod verbs;
mod verbs_of_several;

pub mod guava;
pub mod oracle;
pub mod random;
pub mod vectors;

pub use backend_subject::{BackendSubject, Ready, Wait};
pub use changes::Changes;
pub use compare::{Mismatch, Report, random_traces, suite};
pub use core_subject::{CoreKey, CoreSubject};
pub use memory_keys::MemoryKeys;
pub use subject::{Fields, Subject};
pub use verbs::{KeySubject, Reserved, random_changes, random_verbs};
pub use verbs_of_several::{KeyCall, KeysSubject, NotDone, random_keys};
