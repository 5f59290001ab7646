//! The `fluxgate` binary.

use std::process::ExitCode;

/// glibc's allocator keeps the memory of a burst: one small allocation that survives pins
/// all memory below it. musl's has one lock for all threads. jemalloc returns unused pages to
/// the system within about twenty seconds, even if the process is idle.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    fluxgate::cli::run()
}
