//! Bulkheads: permits, those who wait for one, and limits that move.

mod line_up;

mod corners;
mod random;
mod runtimes;
mod text;
mod threads;
