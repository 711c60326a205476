#![no_main]
//! Any bytes as a limit.

#[path = "../src/inputs.rs"]
mod inputs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| inputs::limit(data));
