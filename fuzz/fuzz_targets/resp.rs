#![no_main]
//! Any bytes as RESP, in any pieces.

#[path = "../src/resp_inputs.rs"]
mod resp_inputs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| resp_inputs::resp(data));
