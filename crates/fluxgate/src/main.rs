//! `fluxgate`: the one binary.

mod cli;
mod rule_file;
mod simulate;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
