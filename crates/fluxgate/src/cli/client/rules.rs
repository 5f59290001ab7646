//! `fluxgate rules`: lists the active rules; compares and changes the stored ones.

mod apply;
mod change;
mod content;
mod plan;
mod rollback;
mod rule_file;
mod stored;
mod trial;

use http::Method;

use super::server::ServerArguments;
use super::text::{Table, rule_row};
use super::{call, run};
use crate::cli::{Failure, print, print_file};
use apply::{ApplyArguments, apply};
use plan::{DiffArguments, diff};
use rollback::{RollbackArguments, rollback};

/// The arguments of `fluxgate rules`.
#[derive(Debug, clap::Args)]
pub(crate) struct RulesArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Print the rules as a rule file
    #[arg(long, conflicts_with = "json")]
    yaml: bool,
    #[command(subcommand)]
    command: Option<RulesCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum RulesCommand {
    /// Show what `apply` would change, rule by rule
    ///
    /// Exits with 0 if nothing would change, and with 1 if anything would.
    Diff(DiffArguments),
    /// Store the rule sets of a file in the service
    ///
    /// Validates the whole file first; with a fault, writes nothing and exits with 78. Then writes
    /// each rule set that differs. If another writer changes one of them at the same time, it stops,
    /// reports what is written, and exits with 75.
    Apply(ApplyArguments),
    /// Restore an earlier revision of a stored rule set
    ///
    /// Exits with 75 if another writer changes the rule set at the same time.
    Rollback(RollbackArguments),
}

/// Lists the active rules, or runs a command on the stored ones.
pub(crate) fn rules(arguments: &RulesArguments) -> Result<(), Failure> {
    let RulesArguments {
        server, json, yaml, ..
    } = arguments;
    let Some(command) = &arguments.command else {
        return list(server, *json, *yaml);
    };
    if *yaml {
        let kind = clap::error::ErrorKind::ArgumentConflict;
        let message = "the argument '--yaml' is for the list of rules, without a command\n";
        clap::Error::raw(kind, message).exit();
    }
    let server = server.server()?;
    match command {
        RulesCommand::Diff(arguments) => run(diff(&server, arguments, *json)),
        RulesCommand::Apply(arguments) => run(apply(&server, arguments, *json)),
        RulesCommand::Rollback(arguments) => run(rollback(&server, arguments, *json)),
    }
}

/// Prints the active rules.
fn list(server: &ServerArguments, json: bool, yaml: bool) -> Result<(), Failure> {
    if yaml {
        let answer = call(server, Method::GET, "/v1/rules_text", None)?;
        return print_file(answer["text"].as_str().unwrap_or_default());
    }
    let answer = call(server, Method::GET, "/v1/rule_sets", None)?;
    if json {
        return print(&format!("{answer}\n"));
    }
    let mut table = Table::new(["RULE", "NAME", "MODE", "ALGORITHM", "KEY", "LIMITS"]);
    for set in answer["rule_sets"].as_array().into_iter().flatten() {
        for rule in set["rules"].as_array().into_iter().flatten() {
            table.row(rule_row(&set["name"], rule));
        }
    }
    print(&table.to_string())
}
