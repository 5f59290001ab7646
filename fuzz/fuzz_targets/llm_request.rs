#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fluxgate_llm::fuzzing::llm_request(bytes));
