//! Writes the conformance vectors.

use crate::root;
use sluicegate_conformance::vectors::{FILES, generate, generate_budgets};

pub(crate) fn write() -> Result<(), String> {
    let folder = root().join("crates/sluicegate-conformance/vectors");
    let files = FILES.iter().map(|(name, _)| (*name, generate(name)));
    for (name, text) in files.chain([("budgets", generate_budgets())]) {
        let path = folder.join(name).with_extension("csv");
        std::fs::write(&path, text?).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}
