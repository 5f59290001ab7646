//! `fluxgate import`: converts the configuration of another rate limiter.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use fluxgate_import::{Format, ImportError, Imported, Output, Remark, import};

use crate::cli::input::is_same_file;
use crate::cli::{Exit, Failure, print, print_message};
use crate::config::rule_file;

/// The arguments of `fluxgate import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The format of the file
    #[arg(value_enum)]
    format: FormatArgument,
    /// The configuration to import
    file: PathBuf,
    /// The file for the result; `-` is standard output
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    output: PathBuf,
    /// Overwrite the output if it exists
    #[arg(long)]
    force: bool,
    /// Write a whole configuration, with the routes, filters, stores and rule sources of the file
    #[arg(long)]
    config: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FormatArgument {
    /// The YAML of envoyproxy/ratelimit
    EnvoyRatelimit,
    /// An nginx configuration with `limit_req` and `limit_conn`
    Nginx,
    /// The declarative YAML of Kong
    Kong,
    /// The application.yml of the Spring Boot starter for Bucket4j
    Bucket4j,
    /// The rule documents of OpenFluxGate, in JSON or YAML, or its application.yml
    Openfluxgate,
    /// The application.yml of Spring Cloud Gateway
    SpringCloudGateway,
}

/// Converts the file, and writes the rules.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let format = match arguments.format {
        FormatArgument::EnvoyRatelimit => Format::EnvoyRatelimit,
        FormatArgument::Nginx => Format::Nginx,
        FormatArgument::Kong => Format::Kong,
        FormatArgument::Bucket4j => Format::Bucket4j,
        FormatArgument::Openfluxgate => Format::OpenFluxgate,
        FormatArgument::SpringCloudGateway => Format::SpringCloudGateway,
    };
    let output = if arguments.config {
        Output::Config
    } else {
        Output::Rules
    };
    let path = arguments.file.as_path();
    let text = rule_file::read_text(path)?;
    let origin = path.file_name().unwrap_or(path.as_os_str());
    let imported = import(format, &origin.to_string_lossy(), &text, output)
        .map_err(|error| explain(error, path))?;
    write(&imported, arguments)?;
    print_message(&summary(&imported, path));
    Ok(())
}

fn write(imported: &Imported, arguments: &Arguments) -> Result<(), Failure> {
    let output = arguments.output.as_path();
    if output.as_os_str() == "-" {
        return print(&imported.text);
    }
    let failure = |problem: &dyn std::fmt::Display| {
        Failure::new(Exit::Io, format!("{}: {problem}", output.display()))
    };
    if is_same_file(output, fs::metadata(&arguments.file)) {
        return Err(failure(&"would be overwritten; name another output"));
    }
    // A device or a pipe loses nothing.
    let exists = fs::metadata(output).is_ok_and(|file| file.is_file());
    if exists && !arguments.force {
        let kind = clap::error::ErrorKind::ValueValidation;
        let message = format!(
            "{}: the file exists; `--force` overwrites it\n",
            output.display()
        );
        clap::Error::raw(kind, message).exit();
    }
    fs::write(output, &imported.text).map_err(|error| failure(&error))
}

fn summary(imported: &Imported, path: &Path) -> String {
    let mut summary = format!("{}: {} rule(s)", path.display(), imported.rules);
    if imported.routes > 0 {
        let _ = write!(summary, ", {} route(s)", imported.routes);
    }
    if imported.lost > 0 {
        let _ = write!(
            summary,
            "; not carried over: {}, see the comments",
            imported.lost
        );
    }
    summary
}

fn explain(error: ImportError, path: &Path) -> Failure {
    match error {
        ImportError::Invalid(faults) => rule_file::invalid(path, faults).into(),
        ref error @ (ImportError::Nothing(ref remarks) | ImportError::OnlyConfig(ref remarks)) => {
            with_remarks(path, &error.to_string(), remarks)
        }
        error @ (ImportError::OnlyRules | ImportError::Unusable(_)) => {
            with_remarks(path, &error.to_string(), &[])
        }
    }
}

fn with_remarks(path: &Path, message: &str, remarks: &[Remark]) -> Failure {
    let path = path.display();
    let mut lines = vec![format!("{path}: {message}")];
    let remarks = remarks.iter();
    lines.extend(remarks.map(|it| format!("{path}:{}: {}", it.line, it.sentence())));
    Failure::new(Exit::Config, lines.join("\n"))
}
