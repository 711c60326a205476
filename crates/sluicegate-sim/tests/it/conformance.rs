//! The replay engine answers as the model does.

use sluicegate::Limit;
use sluicegate_conformance::{Fields, Subject, suite};
use sluicegate_core::Time;
use sluicegate_sim::Replay;

struct Replayed(Replay);

impl Subject for Replayed {
    fn check(&mut self, at: Time, key: &[u8], cost: u64) -> Fields {
        self.0.check(at, key, cost).into()
    }
}

#[test]
fn replay_conforms() {
    let make = |limits: &[Limit], _| Replayed(Replay::new(limits.to_vec()).expect("limits that go together"));
    let report = suite(make).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(report.checks > 30_000, "{report:?}");
}
