//! The vectors equal the model's decisions, every algorithm has all of its files, and the core
//! passes them.

use sluicegate::Limit;
use sluicegate_conformance::vectors::{BUDGETS, FILES, generate, generate_budgets, run, run_budgets};
use sluicegate_conformance::{BackendSubject, CoreKey, CoreSubject, suite};
use std::path::Path;

#[test]
fn the_files_equal_the_models_decisions() {
    for (name, text) in FILES {
        let fresh = generate(name).unwrap();
        assert!(text == fresh, "vectors/{name}.csv is stale; run cargo xtask vectors");
    }
}

#[test]
fn the_core_passes_the_vectors() {
    let report = run(CoreSubject::new).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(report.cases > 200 && report.checks > 2_000, "{report:?}");
}

#[test]
fn the_vectors_of_budgets_equal_the_model_and_the_core_and_memory_pass_them() {
    let fresh = generate_budgets().unwrap();
    assert!(BUDGETS == fresh, "vectors/budgets.csv is stale; run cargo xtask vectors");
    for report in [run_budgets(CoreKey::new), run_budgets(BackendSubject::memory)] {
        let report = report.unwrap_or_else(|mismatch| panic!("{mismatch}"));
        assert!(report.cases > 30 && report.checks > 300, "{report:?}");
    }
}

#[test]
fn the_core_passes_the_whole_suite() {
    suite(CoreSubject::new).unwrap_or_else(|mismatch| panic!("{mismatch}"));
}

/// One file per algorithm, with the same name everywhere.
#[test]
fn every_algorithm_has_all_of_its_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for algorithm in Limit::CHECKS {
        let name = algorithm.replace('-', "_");
        for path in [
            format!("crates/sluicegate-core/src/{name}.rs"),
            format!("crates/sluicegate-conformance/vectors/{name}.csv"),
        ] {
            assert!(root.join(&path).is_file(), "{algorithm} lacks {path}");
        }
        assert!(FILES.iter().any(|(file, _)| *file == name), "{algorithm} is not among the vector files");
    }
}
