//! What stores suffer, and what callers see of it.
//!
//! `cargo test -p sluicegate-redis --test it faults -- --nocapture` prints how many calls each fault has cost; with `--include-ignored` it runs the long ones too.

mod cut;
mod dropped;
mod full;
mod outages;
mod policies;
mod topologies;
