//! Bulkheads: permits, those who wait for one, and limits that move.

mod support;

mod edge_cases;
mod random;
mod runtimes;
mod text;
mod threads;
