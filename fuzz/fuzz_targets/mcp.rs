#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fluxgate::fuzzing::mcp(bytes));
