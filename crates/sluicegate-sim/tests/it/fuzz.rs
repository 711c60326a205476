//! The fuzz targets without the fuzzer: the corpus, and inputs made from it at random.

#[path = "../../../../fuzz/src/inputs.rs"]
mod inputs;
#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn any_bytes_as_a_limit() {
    replay("limit", inputs::limit);
}

#[test]
fn any_bytes_as_a_guard() {
    replay("guard", inputs::guard);
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
