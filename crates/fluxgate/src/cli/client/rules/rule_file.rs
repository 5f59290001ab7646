//! The rule file of a command.

use std::io;
use std::path::Path;

use fluxgate_core::regular_file::{self, MAX_BYTES};
use http::Method;
use serde_json::{Value, json};

use super::content::SetContent;
use crate::api::body;
use crate::cli::client::server::Server;
use crate::cli::{Exit, Failure, print_message};
use crate::config::{Deployment, RawConfig, rule_file};
use crate::reload::to_json;

/// The fields of a rule file that are settings of a service, which cannot be stored.
const SETTINGS: [&str; 2] = ["on_missing_rule_set", "keys"];

/// A rule file that is valid by itself.
#[derive(Debug)]
pub(super) struct RuleFile {
    /// The name in messages.
    name: String,
    text: String,
    /// The rule sets by name, in the order of the file.
    sets: Vec<(String, SetContent)>,
    /// Lines with the position, as `fluxgate validate` prints them.
    warnings: Vec<String>,
}

impl RuleFile {
    /// Reads a file, or standard input if it is `-`.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = if path.as_os_str() == "-" {
            let bytes = regular_file::read_bounded(io::stdin(), MAX_BYTES)
                .map_err(|error| Failure::new(Exit::NoInput, format!("-: {error}")))?;
            rule_file::decode_utf8(path, bytes)?
        } else {
            rule_file::read_text(path)?
        };
        let raw = RawConfig::parse(path, &text)?;
        let rules = raw.check_rules()?;
        let name = path.display().to_string();
        let mut sets = Vec::new();
        for (set, node) in raw.rule_sets() {
            let content = SetContent::read(set, to_json(node)).map_err(|faults| {
                let faults = faults.iter().map(|fault| format!("\n  {fault}"));
                let faults: String = faults.collect();
                let message = format!("{name}: rule set `{set}` is invalid as JSON:{faults}");
                Failure::new(Exit::Config, message)
            })?;
            sets.push((set.to_owned(), content));
        }
        let settings = SETTINGS.iter().filter_map(|field| {
            let place = raw.place_of(field)?;
            Some(format!(
                "{place}: warning: `{field}` is a setting of the service and cannot be stored; it is \
                 ignored"
            ))
        });
        let mut warnings: Vec<_> = settings.collect();
        warnings.extend(raw.rule_warnings(&rules, &Deployment::default()));
        Ok(Self {
            name,
            text,
            sets,
            warnings,
        })
    }

    /// Returns its name in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rule sets by name, in the order of the file.
    pub(super) fn sets(&self) -> impl Iterator<Item = (&str, &SetContent)> {
        self.sets.iter().map(|(name, set)| (&**name, set))
    }

    /// Returns whether it has a rule set of this name.
    pub(super) fn has(&self, set: &str) -> bool {
        self.sets.iter().any(|(name, _)| name == set)
    }

    /// Validates the file with the filters and the store of the service, and prints warnings.
    pub(super) async fn validate_for(&self, server: &Server) -> Result<(), Failure> {
        let call = json!({ "rules": self.text }).to_string();
        // The service validates each rule set again before it stores it.
        if call.len() > body::MAX_BYTES {
            self.warnings
                .iter()
                .for_each(|warning| print_message(warning));
            return Ok(());
        }
        let report = server
            .call(Method::POST, "/v1/validate", Some(call.into_bytes()))
            .await?;
        let lines = |name: &str, kind: &str| -> Vec<_> {
            let list = report[name].as_array().into_iter().flatten();
            list.map(|it| self.located(it, kind)).collect()
        };
        let faults = lines("faults", "");
        if !faults.is_empty() {
            return Err(Failure::new(Exit::Config, faults.join("\n")));
        }
        let of_service = lines("warnings", "warning: ");
        let own = self.warnings.iter();
        for warning in own
            .filter(|it| !of_service.contains(*it))
            .chain(&of_service)
        {
            print_message(warning);
        }
        Ok(())
    }

    /// Returns the line of a fault or a warning of the service.
    fn located(&self, fault: &Value, kind: &str) -> String {
        let message = fault["message"].as_str().unwrap_or_default();
        let (line, column) = (&fault["line"], &fault["column"]);
        format!("{}:{line}:{column}: {kind}{message}", self.name)
    }
}
