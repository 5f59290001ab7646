//! `fluxgate man`: the manual pages.

use std::io;
use std::path::{Path, PathBuf};

use clap_mangen::Man;

use super::output::print_unescaped;
use super::{Exit, Failure};

/// The arguments of `fluxgate man`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Write a page for each command into this directory instead, such as `fluxgate-run.1`
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the manual page of a command, or writes those of its subcommands as well.
pub(super) fn run(command: clap::Command, arguments: &Arguments) -> Result<(), Failure> {
    // A page about `fluxgate help` would repeat the others.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(dir) = &arguments.dir else {
        let mut text = Vec::new();
        let rendered = page(command).render(&mut text);
        rendered.map_err(|error| Failure::new(Exit::Io, error))?;
        return print_unescaped(&text);
    };
    write(&command, dir).map_err(|error| {
        let message = format!("--dir: {}: {error}", dir.display());
        Failure::new(Exit::Io, message)
    })
}

fn write(command: &clap::Command, dir: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands() {
        write(subcommand, dir)?;
    }
    page(command.clone()).generate_to(dir).map(drop)
}

fn page(command: clap::Command) -> Man {
    Man::new(command).source(concat!("fluxgate ", env!("CARGO_PKG_VERSION")))
}
