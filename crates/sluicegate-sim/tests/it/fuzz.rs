//! The fuzz targets without the fuzzer: the corpus, and inputs made from it at random.

#[path = "../../../../fuzz/src/inputs.rs"]
mod inputs;

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
fn replay(target: &str, run: impl Fn(&[u8])) {
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

#[test]
fn any_bytes_as_a_limit() {
    replay("limit", inputs::limit);
}

#[test]
fn any_bytes_as_a_trace() {
    replay("trace", inputs::trace);
}

#[test]
fn any_bytes_as_a_log() {
    replay("log", inputs::log);
}

/// Garbage that has nothing of a log but the bytes that matter in one.
#[test]
fn random_bytes_as_a_log() {
    let alphabet = b"{}[]\":,\\ \n\r-+./0129eTZaip\xff\xef\xbb\xbf";
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..20_000 {
        let mut input = b"\n".to_vec();
        for _ in 0..random(120) {
            input.push(alphabet[random(alphabet.len())]);
        }
        inputs::log(&input);
    }
}
