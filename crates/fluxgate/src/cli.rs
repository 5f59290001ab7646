//! The command line.

mod simulate;
mod validate;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::config::{ConfigError, Overrides, RawConfig};
use crate::failure::{Exit, Failure};
use crate::reload::ConfigFile;
use crate::server;

/// A distributed rate limiter that is exact.
#[derive(Debug, Parser)]
#[command(name = "fluxgate", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve: every listener that the config names; without a config, a demo (the default)
    ///
    /// Ends on SIGTERM or Ctrl-C, once what is in flight has been answered. Exits
    /// with 78 if the config is bad, with 69 if an address is taken.
    Run(ConfigOptions),
    /// Check a config or a rule file; print `file:line:column: what is wrong` for each fault
    ///
    /// The directory of `rules_from` is looked into, if it is there; one may also be
    /// named in place of a file. Exits with 0, or with 78 if anything is wrong.
    Validate {
        /// The file to check, or a directory of rule files
        file: PathBuf,
    },
    /// Run recorded requests through rules, on virtual time and without a server
    ///
    /// Reads one JSON object a line, `{"t": MICROSECONDS, "user": …, "path": …}`,
    /// and writes one decision a line. Only the time is required: `t`, or RFC 3339
    /// under `time`. Exits with 65 at a bad line, with 78 if the rules are bad.
    Simulate(simulate::Arguments),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a script that completes commands and options
    Completions {
        /// The shell that is to run it
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print the effective configuration, with secrets hidden
    ///
    /// Defaults are filled in; a comment tells where a value comes from the
    /// environment or a flag. Exits with 78 if anything is wrong.
    Show(ConfigOptions),
}

/// Where the configuration comes from.
#[derive(Debug, Default, clap::Args)]
struct ConfigOptions {
    /// The config file; without one, the built-in demo
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A value that counts for more than the file and the environment, such as
    /// `store.redis.deadline=20ms`; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
}

impl ConfigOptions {
    fn overrides(&self) -> Overrides {
        Overrides::from_env(std::env::vars_os()).and_flags(&self.set)
    }

    fn raw(&self) -> Result<RawConfig, ConfigError> {
        RawConfig::load(self.config.as_deref(), &self.overrides())
    }
}

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    let command = Cli::parse().command;
    let result = match command.unwrap_or(Command::Run(ConfigOptions::default())) {
        Command::Run(options) => serve(&options),
        Command::Validate { file } => validate::validate(&file),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Config(ConfigCommand::Show(options)) => show(&options),
        Command::Completions { shell } => completions(shell),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nothing can be done if standard error is closed.
            let _ = writeln!(io::stderr(), "{}", failure.message);
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn serve(options: &ConfigOptions) -> Result<(), Failure> {
    let raw = options.raw()?;
    let file = options.config.clone();
    let file = file.map(|path| ConfigFile::new(path, options.overrides(), raw.clone()));
    server::run(&raw, file)
}

fn show(options: &ConfigOptions) -> Result<(), Failure> {
    print(options.raw()?.to_effective_yaml()?.as_bytes())
}

fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fluxgate", &mut script);
    print(&script)
}

fn print(text: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        // The reader, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(Exit::Io, format!("standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}
