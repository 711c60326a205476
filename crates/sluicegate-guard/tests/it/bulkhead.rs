//! Bulkheads: permits, waiters and changing limits.

mod support;

mod edge_cases;
mod random;
mod runtimes;
mod text;
mod threads;
