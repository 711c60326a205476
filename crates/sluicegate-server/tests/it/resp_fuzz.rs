//! The fuzz target without the fuzzer: the corpus, and random inputs made from it.

#[path = "../../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../../fuzz/src/resp_inputs.rs"]
mod resp_inputs;

#[test]
fn any_bytes_as_resp() {
    replay::replay("resp", resp_inputs::resp);
}

/// Garbage made of the bytes that matter in RESP.
#[test]
fn random_bytes_as_resp() {
    let alphabet = b"*$\r\n\r\n0123-\"'\\x aP\0\xff";
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..30_000 {
        let mut input = vec![u8::try_from(random(256)).unwrap()];
        for _ in 0..random(80) {
            input.push(alphabet[random(alphabet.len())]);
        }
        resp_inputs::resp(&input);
    }
}
