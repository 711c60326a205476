//! Writes the conformance vectors.

use crate::root;
use sluicegate_conformance::vectors::{FILES, generate};

pub(crate) fn write() -> Result<(), String> {
    let folder = root().join("crates/sluicegate-conformance/vectors");
    for (name, _) in FILES {
        let path = folder.join(name).with_extension("csv");
        std::fs::write(&path, generate(name)?).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}
