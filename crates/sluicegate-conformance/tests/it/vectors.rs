//! The vectors are what the model says, every algorithm has its file in each place, and the core passes them.

use sluicegate::Limit;
use sluicegate_conformance::vectors::{FILES, generate, run};
use sluicegate_conformance::{InCore, suite};
use std::path::Path;

#[test]
fn the_files_are_what_the_model_answers() {
    for (name, text) in FILES {
        let fresh = generate(name).unwrap();
        assert!(text == fresh, "vectors/{name}.csv is stale; run cargo xtask vectors");
    }
}

#[test]
fn the_core_passes_them() {
    let report = run(InCore::new).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(report.cases > 200 && report.checks > 2_000, "{report:?}");
}

#[test]
fn the_core_passes_the_whole_suite() {
    suite(InCore::new).unwrap_or_else(|mismatch| panic!("{mismatch}"));
}

/// One file an algorithm, the same name everywhere.
#[test]
fn every_algorithm_has_its_file_in_each_place() {
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
