//! `fluxgate simulate`: its arguments, files and exit codes.

mod files;
mod progress;

use std::io::{self, ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};

use fluxgate_simulate::{Format, Options, ReportLabels, Simulation, SimulationError};

use crate::cli::input::load_rules;
use crate::cli::{Exit, Failure, print_message};
use files::{create_output, create_report, failure, is_standard, open_input};
use progress::ProgressBar;

/// The arguments of `fluxgate simulate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The rules: a rule file, a config or a directory of rule files
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// Compare with these old rules: print the requests that are newly denied or newly
    /// admitted to standard error, and add them to the report
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// The recorded requests; `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    input: PathBuf,
    /// The file for the decisions; `-` is standard output
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    output: PathBuf,
    /// The format of the recorded requests
    #[arg(long, value_enum, default_value_t = FormatArgument::Ndjson)]
    format: FormatArgument,
    /// The rule set for lines that name none (default: the only rule set)
    #[arg(long, value_name = "NAME")]
    rule_set: Option<String>,
    /// Print a table of the rules and the most denied identities to standard error
    #[arg(long)]
    summary: bool,
    /// Write an HTML report: decisions over time and by rule, the most denied identities,
    /// and a comparison of the five algorithms
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Skip and count invalid lines instead of stopping at the first
    #[arg(long)]
    lenient: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FormatArgument {
    /// One JSON object per line
    Ndjson,
    /// Access logs of Apache and nginx
    Combined,
}

/// Replays the input, and writes decisions, summary and report.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let load = |path: &Path| {
        let instead = "write them to a file: GET /v1/rule_sets/NAME of the running service";
        load_rules(path, instead)
    };
    let rules = load(&arguments.rules)?;
    let old_rules = arguments.against.as_deref().map(load).transpose()?;
    let input = open_input(&arguments.input)?;
    let mut progress = show_progress(input.size, arguments);
    let mut sources = vec![arguments.input.as_path(), arguments.rules.as_path()];
    sources.extend(arguments.against.as_deref());
    let report = arguments.report.as_deref();
    // Hours of work must not end with a report that cannot be written.
    let report = report
        .map(|path| create_report(path, &arguments.output, &sources))
        .transpose()?;
    let output = create_output(&arguments.output, &sources)?;

    let options = Options {
        format: match arguments.format {
            FormatArgument::Ndjson => Format::Ndjson,
            FormatArgument::Combined => Format::Combined,
        },
        rule_set: arguments.rule_set.clone(),
        lenient: arguments.lenient,
        summary: arguments.summary,
        report: report.is_some(),
        max_applied: None,
    };
    let mut simulation = Simulation::new(rules, options);
    if let Some(old_rules) = old_rules {
        simulation = simulation.against(old_rules);
    }
    let result = simulation.run(input.reader, output, |done| progress.show(done));
    drop(progress);
    let summary = summary(&simulation, arguments);
    if !summary.is_empty() {
        print_message(summary.trim_end_matches('\n'));
    }

    let failed = result.as_ref().err().map(|error| explain(error, arguments));
    let written = match (&arguments.report, report) {
        (Some(path), Some(file)) => {
            let labels = ReportLabels {
                rules: &file_name(&arguments.rules),
                input: &if is_standard(&arguments.input) {
                    "standard input".into()
                } else {
                    file_name(&arguments.input)
                },
                old_rules: &arguments
                    .against
                    .as_deref()
                    .map(file_name)
                    .unwrap_or_default(),
                early_end: failed.as_ref().map(|failure| failure.message.as_str()),
            };
            let page = simulation.report(&labels).unwrap_or_default();
            let written = file.write(&page);
            written.map_err(|error| failure(Exit::Io, path, error))
        }
        _ => Ok(()),
    };
    match (result, failed) {
        // The reader of the decisions closed its end, as `head` does.
        (Err(SimulationError::Output(error)), _) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        (_, Some(failure)) => Err(failure),
        (_, None) => written,
    }
}

/// Returns the failure for an error that ended the run early.
fn explain(error: &SimulationError, arguments: &Arguments) -> Failure {
    let (input, output) = (&arguments.input, &arguments.output);
    match error {
        SimulationError::Input(error) => failure(Exit::NoInput, input, error),
        SimulationError::Output(error) => failure(Exit::Io, output, error),
        error @ SimulationError::TooMuch { .. } => failure(Exit::Data, input, error),
        SimulationError::BadLine { line, reason } => {
            let message = format!("{}:{line}: {reason}", input.display());
            Failure::new(Exit::Data, message)
        }
    }
}

/// Returns the tables and warnings for standard error.
fn summary(simulation: &Simulation, arguments: &Arguments) -> String {
    let mut text = String::new();
    if let Some(summary) = simulation.summary().filter(|_| arguments.summary) {
        text += &summary.to_string();
    }
    if let Some(changes) = simulation.changes() {
        let gap = if arguments.summary { "\n" } else { "" };
        text += &format!("{gap}{changes}");
    }
    let skipped = simulation.skipped();
    if arguments.lenient && (skipped > 0 || arguments.summary) {
        text += &format!("{skipped} bad line(s) skipped\n");
    }
    for warning in simulation.warnings() {
        text += &format!("{warning}\n");
    }
    text
}

/// Returns a progress bar for a person who waits for a large file, unless it would
/// get in the way of the decisions.
fn show_progress(size: Option<u64>, arguments: &Arguments) -> ProgressBar {
    const LARGE: u64 = 16 * 1024 * 1024;
    let shares_terminal = is_standard(&arguments.output) && io::stdout().is_terminal();
    let is_wanted = io::stderr().is_terminal() && !shares_terminal;
    ProgressBar::new(size.filter(|size| *size >= LARGE && is_wanted))
}

/// Returns a path without its directory, so that a report is the same wherever it is
/// made.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
