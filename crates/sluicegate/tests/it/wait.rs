//! Waiting in queues, in virtual time.

mod bounds;
pub(crate) mod caller;
mod corners;
mod dropped;
mod events;
mod order;
mod overtaking;
mod random;
mod real_time;
mod returned;
mod runtimes;
