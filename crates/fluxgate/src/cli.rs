//! The command line.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::rule_file::{self, RuleFileError};
use crate::simulate;

/// A distributed rate limiter that is exact.
#[derive(Debug, Parser)]
#[command(name = "fluxgate", version, disable_help_subcommand = true)]
#[command(arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a rule file; print `file:line:column: what is wrong` for each fault
    ///
    /// Exits with 0, or with 78 if anything is wrong.
    Validate {
        /// The file to check
        file: PathBuf,
    },
    /// Run recorded requests through rules, on virtual time and without a server
    ///
    /// Reads one JSON object a line, `{"t": MICROSECONDS, "user": …, "path": …}`,
    /// and writes one decision a line. Only the time is required: `t`, or RFC 3339
    /// under `time`. Exits with 65 at a bad line, with 78 if the rules are bad.
    Simulate(simulate::Options),
}

/// The exit codes, after `sysexits.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Bad input data.
    Data = 65,
    /// A file that cannot be read.
    NoInput = 66,
    /// Trouble while writing.
    Io = 74,
    /// Bad rules.
    Config = 78,
}

/// What ended a command: what to say, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self {
            exit,
            message: message.to_string(),
        }
    }
}

impl From<RuleFileError> for Failure {
    fn from(error: RuleFileError) -> Self {
        let exit = match error {
            RuleFileError::Unreadable { .. } => Exit::NoInput,
            RuleFileError::Invalid { .. } => Exit::Config,
        };
        Self::new(exit, error)
    }
}

pub(crate) fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Validate { file } => validate(&file),
        Command::Simulate(options) => simulate::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Whoever closed standard error does not want to know.
            let _ = writeln!(io::stderr(), "{}", failure.message);
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn validate(file: &std::path::Path) -> Result<(), Failure> {
    let rules = rule_file::load(file)?;
    let count = rules.iter().map(|set| set.rules().len()).sum::<usize>();
    let sets = rules.iter().count();
    let file = file.display();
    let _ = writeln!(
        io::stdout(),
        "{file}: ok, {sets} rule set(s) with {count} enabled rule(s)"
    );
    Ok(())
}
