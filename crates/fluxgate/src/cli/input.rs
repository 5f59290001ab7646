//! What commands read: requests, rules and files.

use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RuleOptions;

use crate::config::{Deployment, RawConfig, Rules};
use crate::failure::{Exit, Failure};
use crate::reload::rules_in;

/// The maximum size of a request in a file or on standard input.
const MAX_REQUEST_BYTES: u64 = 1024 * 1024;

/// Reads a request: JSON, `@FILE`, or `-` for standard input.
pub(super) fn read_request(argument: &str) -> Result<Vec<u8>, Failure> {
    let read = |from: Box<dyn Read>| {
        let mut text = Vec::new();
        from.take(MAX_REQUEST_BYTES + 1).read_to_end(&mut text)?;
        Ok(text)
    };
    let (name, text) = match argument.strip_prefix('@') {
        Some(path) => (path, fs::File::open(path).and_then(|it| read(Box::new(it)))),
        None if argument == "-" => ("-", read(Box::new(io::stdin()))),
        None => return Ok(argument.into()),
    };
    let text =
        text.map_err(|error: io::Error| Failure::new(Exit::NoInput, format!("{name}: {error}")))?;
    if text.len() as u64 > MAX_REQUEST_BYTES {
        Err(Failure::new(
            Exit::Data,
            format!("--request: {name} is larger than {MAX_REQUEST_BYTES} bytes"),
        ))
    } else {
        Ok(text)
    }
}

/// Reads the rules of a rule file, a config or a directory. `instead` says what to do if
/// they are in Redis.
pub(super) fn load_rules(path: &Path, instead: &str) -> Result<RuleSets, Failure> {
    let in_directory = |path: &Path, options: RuleOptions| {
        let compiled = rules_in(path, options, Deployment::default())?;
        Ok(compiled.rules)
    };
    if path.is_dir() {
        return in_directory(path, RuleOptions::default());
    }
    let raw = RawConfig::read(path)?;
    if raw.is_rule_file() {
        return Ok(raw.check_rules()?);
    }
    let config = raw.check()?;
    let options = config.rule_options();
    match config.rules {
        Rules::Inline(rules) => Ok(rules),
        Rules::Directory { path, .. } => in_directory(&path, options),
        elsewhere => {
            let server = elsewhere.server().unwrap_or_default();
            let message = format!("{}: the rules are in {server}; {instead}", path.display());
            Err(Failure::new(Exit::Config, message))
        }
    }
}

/// Returns whether a path leads to the regular file with this metadata, by any path, link or
/// redirection. Writing to a terminal or a device destroys nothing that is still to be read.
pub(super) fn is_same_file(path: &Path, other: io::Result<Metadata>) -> bool {
    let id = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let (Ok(file), Ok(other)) = (fs::metadata(path), other) else {
        return false;
    };
    file.is_file() && id(&file) == id(&other)
}
