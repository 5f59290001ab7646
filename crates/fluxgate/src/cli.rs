//! The command line.

mod client;
mod explain;
mod import;
mod input;
mod output;
mod simulate;
mod validate;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::config::{ConfigError, Overrides, RawConfig, effective_yaml};
use crate::failure::{Exit, Failure};
use crate::reload::ConfigFile;
use crate::server;
use output::{print, print_file, print_message, print_unescaped};

/// An exact distributed rate limiter
#[derive(Debug, Parser)]
#[command(name = "fluxgate", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// The options of `run`, which is the default command.
    #[command(flatten)]
    options: ConfigOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service (the default command); without a config file, run a demo
    ///
    /// Opens every listener that the config names. On SIGTERM or Ctrl-C, answers the
    /// requests in flight and exits. Exits with 78 if the config is invalid, and with 69 if
    /// an address is in use.
    Run(ConfigArguments),
    /// Validate a config, a rule file or a directory of rule files
    ///
    /// Prints `file:line:column: message` for each fault. Without faults, prints warnings
    /// about settings that are probably not intended, such as rules that never match. Also validates
    /// the directory that `rules_from` names, if it exists. Exits with 0, or with 78 if there
    /// are faults.
    Validate {
        /// The file to validate, or a directory of rule files
        file: PathBuf,
        /// Exit with 78 if there are warnings
        #[arg(long)]
        strict: bool,
    },
    /// Explain the decision about a request: which rules match, and what they count
    ///
    /// Uses an empty store in memory and no server, or a running service. Exits with 65 if the
    /// request is invalid, and with 78 if the rules are invalid.
    Explain(explain::Arguments),
    /// Show what a running service decides, as a live table
    Top(client::TopArguments),
    /// Send a request to a running service, which decides and charges it
    ///
    /// Prints the decision as JSON. Exits with 75 if the request is denied.
    Check(client::CheckArguments),
    /// Show what an identity has left, in a running service
    State(client::StateArguments),
    /// Refund units to an identity, in a running service
    Refund(client::RefundArguments),
    /// Delete the state of an identity or a rule, in a running service
    Reset(client::ResetArguments),
    /// Show what each rule of a running service did over time
    History(client::HistoryArguments),
    /// List who was refused by a running service, and by which rule, the newest first
    Denials(client::DenialsArguments),
    /// List the identities that use most of their limits, and when they run out
    Usage(client::UsageArguments),
    /// List what happened in a fleet: thresholds, changes of rules, failures of the store
    Events(client::EventsArguments),
    /// List the rules of a running service, or change those that it stores
    ///
    /// Without a command, lists the active rules.
    Rules(client::RulesArguments),
    /// Replay recorded requests against rules, in virtual time and without a server
    ///
    /// Reads one JSON object per line, `{"t": MICROSECONDS, "user": …, "path": …}`, and
    /// writes one decision per line. Only the time is required: `t` in microseconds, or
    /// `time` in RFC 3339. Exits with 65 at an invalid line, and with 78 if the rules are
    /// invalid.
    Simulate(simulate::Arguments),
    /// Convert the configuration of another rate limiter into a rule file
    ///
    /// Writes rules with a comment `# not carried over: …` for everything that they do not
    /// express, and the number of these comments to standard error. Exits with 78 if the file
    /// is invalid, or if no rule could be carried over.
    Import(import::Arguments),
    /// Inspect the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a shell completion script
    Completions {
        /// The shell to complete commands in
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print the effective configuration, with secrets redacted
    ///
    /// Includes the defaults. Comments mark values from the environment or from flags.
    /// Exits with 78 if the configuration is invalid.
    Show(ConfigArguments),
}

/// Where the configuration comes from, if the command has a name.
#[derive(Debug, clap::Args)]
struct ConfigArguments {
    #[command(flatten)]
    options: ConfigOptions,
    /// The config file, as with `--config`
    // Not an option of the bare `fluxgate`, where a misspelt command would be a file.
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
}

impl ConfigArguments {
    fn into_options(self) -> ConfigOptions {
        ConfigOptions {
            config: self.options.config.or(self.file),
            set: self.options.set,
        }
    }
}

/// Where the configuration comes from.
#[derive(Debug, clap::Args)]
struct ConfigOptions {
    /// The config file (default: the built-in demo)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a value of the file and the environment, such as
    /// `store.redis.deadline=20ms` (repeatable)
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
}

impl ConfigOptions {
    fn overrides(&self) -> Overrides {
        Overrides::from_env(std::env::vars_os()).and_flags(&self.set)
    }

    fn load(&self) -> Result<RawConfig, ConfigError> {
        RawConfig::load(self.config.as_deref(), &self.overrides())
    }
}

/// Runs the command from the arguments of the process.
pub fn run() -> ExitCode {
    let Cli { command, options } = Cli::parse();
    let result = match command {
        None => serve(&options),
        Some(Command::Run(arguments)) => serve(&arguments.into_options()),
        Some(Command::Validate { file, strict }) => validate::validate(&file, strict),
        Some(Command::Explain(arguments)) => explain::run(&arguments),
        Some(Command::Top(arguments)) => client::top(&arguments),
        Some(Command::Check(arguments)) => client::check(&arguments),
        Some(Command::State(arguments)) => client::state(&arguments),
        Some(Command::Refund(arguments)) => client::refund(&arguments),
        Some(Command::Reset(arguments)) => client::reset(&arguments),
        Some(Command::History(arguments)) => client::history(&arguments),
        Some(Command::Denials(arguments)) => client::denials(&arguments),
        Some(Command::Usage(arguments)) => client::usage(&arguments),
        Some(Command::Events(arguments)) => client::events(&arguments),
        Some(Command::Rules(arguments)) => client::rules(&arguments),
        Some(Command::Simulate(arguments)) => simulate::run(&arguments),
        Some(Command::Import(arguments)) => import::run(&arguments),
        Some(Command::Config(ConfigCommand::Show(arguments))) => show(&arguments.into_options()),
        Some(Command::Completions { shell }) => completions(shell),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_message(&failure.message);
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn serve(options: &ConfigOptions) -> Result<(), Failure> {
    let raw = options.load()?;
    let file = options
        .config
        .clone()
        .map(|path| ConfigFile::new(path, options.overrides(), raw.clone()));
    server::run(&raw, file)
}

fn show(options: &ConfigOptions) -> Result<(), Failure> {
    print(&effective_yaml(&options.load()?)?)
}

fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fluxgate", &mut script);
    print_unescaped(&script)
}
