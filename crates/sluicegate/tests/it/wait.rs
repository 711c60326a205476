//! Waiting in line, in virtual time.

mod bounds;
mod corners;
mod dropped;
mod events;
mod line_up;
mod order;
mod others;
mod random;
mod real_time;
mod runtimes;
