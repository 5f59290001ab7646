#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fluxgate_redis::fuzzing::record_fields(bytes));
