//! The command line.

mod client;
mod config_options;
mod explain;
mod import;
mod input;
mod man;
mod output;
mod simulate;
mod validate;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::config::effective_yaml;
use crate::failure::{Exit, Failure};
use crate::reload::ConfigFile;
use crate::server;
use config_options::{ConfigArguments, ConfigOptions};
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
    /// Ask a running service whether it is ready
    ///
    /// Takes the same options as `run` and asks the API of the config, on this machine and with
    /// its certificate; of the config, only `listen` must be valid. Exits with 0 if the service
    /// can answer checks, and with 69 if it cannot, or does not answer in time.
    Health(client::HealthArguments),
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
    /// Print the manual page
    Man(man::Arguments),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print the effective configuration, with secrets redacted
    ///
    /// Includes the defaults. Comments mark values from the environment or from flags.
    /// Exits with 78 if the configuration is invalid.
    Show(ConfigArguments),
}

/// Runs the command from the arguments of the process.
pub fn run() -> ExitCode {
    let Cli { command, options } = Cli::parse();
    let result = match command {
        None => serve(&options),
        Some(Command::Run(arguments)) => serve(&arguments.options()),
        Some(Command::Validate { file, strict }) => validate::validate(&file, strict),
        Some(Command::Health(arguments)) => client::health(&arguments),
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
        Some(Command::Config(ConfigCommand::Show(arguments))) => show(&arguments.options()),
        Some(Command::Completions { shell }) => completions(shell),
        Some(Command::Man(arguments)) => man::run(Cli::command(), &arguments),
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
