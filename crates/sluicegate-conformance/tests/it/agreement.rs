//! Equal decisions in all six fields, for every algorithm, for lists of limits, and for every verb.

use sluicegate::Limit;
use sluicegate_conformance::{
    Changes, CoreKey, CoreSubject, Report, random_changes, random_traces, random_verbs,
};

/// Random decisions per algorithm; the example `long_run` does ten million and more.
const DECISIONS: u64 = 40_000;

fn agrees(algorithm: Option<&str>) {
    let mut report = Report::default();
    if let Err(mismatch) = random_traces(algorithm, 7, DECISIONS, CoreSubject::new, &mut report) {
        panic!("{mismatch}");
    }
    // A run in which nothing is denied, or nothing is allowed, would prove little.
    assert!(report.denied * 10 > report.checks, "{report:?}");
    assert!(report.denied * 10 < report.checks * 9, "{report:?}");
}

#[test]
fn every_algorithm_agrees_with_the_model() {
    for algorithm in Limit::CHECKS {
        agrees(Some(algorithm));
    }
}

#[test]
fn lists_agree_with_the_model() {
    agrees(None);
}

#[test]
fn every_verb_in_any_order_agrees_with_the_model() {
    let mut report = Report::default();
    if let Err(mismatch) = random_verbs(7, 4 * DECISIONS, true, CoreKey::new, &mut report) {
        panic!("{mismatch}");
    }
    // A run in which no receipt returned anything would prove little.
    assert!(report.returned > 1_000 && report.indebted > 100, "{report:?}");
}

#[test]
fn every_verb_agrees_with_the_model_while_the_limits_change() {
    let mut report = Report::default();
    let changed = random_changes(7, 4 * DECISIONS, true, Changes::All, CoreKey::new, &mut report);
    if let Err(mismatch) = changed {
        panic!("{mismatch}");
    }
    assert!(report.changed > 10_000 && report.returned > 500 && report.indebted > 50, "{report:?}");
}
