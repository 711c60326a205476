//! Semaphores: leases given, returned, renewed and lapsed, and those who wait for them.

mod bounds;
mod corners;
mod dropped;
mod leases;
mod line_up;
mod order;
mod random;
mod real_time;
mod scopes;
