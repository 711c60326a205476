//! Semaphores: leases that are granted, renewed, released and expire, and their waiters.

mod bounds;
mod caller;
mod corners;
mod dropped;
mod leases;
mod order;
mod panics;
mod random;
mod real_time;
mod scopes;

use sluicegate::clock::ManualClock;
use sluicegate::semaphore::Semaphore;

fn semaphore(limit: &str) -> (Semaphore, ManualClock) {
    let clock = ManualClock::default();
    (Semaphore::builder(limit).clock(clock.clone()).build().unwrap(), clock)
}
