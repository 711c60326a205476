//! The fuzz targets without the fuzzer: tests replay the corpus, and inputs made from it, with
//! this.

use std::path::Path;

/// The files of a target's corpus, regressions included.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let inputs: Vec<Vec<u8>> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(inputs.len() > 5, "{} is all but empty", folder.display());
    inputs
}

/// Every input of the corpus cut, doubled and with each byte changed: what a fuzzer tries first.
pub(crate) fn replay(target: &str, run: impl Fn(&[u8])) {
    for input in corpus(target) {
        run(&input);
        for place in 0..input.len().min(400) {
            run(&input[..place]);
            for byte in [0, b' ', b'/', b'9', b'=', b'"', b'\n', 0xff] {
                let mut changed = input.clone();
                changed[place] = byte;
                run(&changed);
                changed.insert(place, byte);
                run(&changed);
            }
        }
    }
}
