//! Faults of the store, and what callers see of them.
//!
//! `cargo test -p sluicegate-redis --test it faults -- --nocapture` prints how many calls each
//! fault costs; `--include-ignored` adds the long ones.

mod cut;
mod dropped;
mod full;
mod outages;
mod policies;
mod topologies;
