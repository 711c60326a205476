#![no_main]
//! Any bytes as what a guard is made of.

#[path = "../src/inputs.rs"]
mod inputs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| inputs::guard(data));
