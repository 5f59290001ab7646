//! `fluxgate`: the one binary.

use std::process::ExitCode;

/// The allocator of glibc keeps what a burst has taken: one small thing that lives
/// on pins the memory below it. This one gives pages back by itself, within about
/// twenty seconds, also when nothing happens any more.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    fluxgate::cli::run()
}
