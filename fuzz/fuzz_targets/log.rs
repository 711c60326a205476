#![no_main]
//! Any bytes as fields and a log.

#[path = "../src/inputs.rs"]
mod inputs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| inputs::log(data));
