#![no_main]
//! Any bytes as limits and a trace.

#[path = "../src/inputs.rs"]
mod inputs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| inputs::trace(data));
