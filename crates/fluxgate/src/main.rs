//! `fluxgate`: the one binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    fluxgate::cli::run()
}
