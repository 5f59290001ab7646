//! The content of a rule source at one moment, and the rules in it.

use std::fmt;
use std::sync::Arc;

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Fault, Faults, Node, Position, Value};

use super::error::{ReloadError, invalid};
use super::settings::{PreparedSettings, Settings};
use crate::config::{Deployment, RawConfig, Rules};

/// The content of a source at one moment, not yet checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// What the source calls this content, if it says so.
    pub(super) version: Option<String>,
    /// The parts of the content, in the order in which faults are reported.
    pub(super) documents: Vec<Document>,
    /// Lines about parts that were not read.
    pub(super) warnings: Vec<String>,
}

/// A file, or what a source has instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document {
    /// The name in messages: a path, an address or the name of a rule set.
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

/// Snapshots are equal if their content is, whatever their versions.
impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        (&self.documents, &self.warnings) == (&other.documents, &other.warnings)
    }
}

/// Rules from a valid source.
#[derive(Debug)]
pub(crate) struct CompiledRules {
    pub(crate) rules: RuleSets,
    /// Lines about rules that are probably not intended, with their places.
    pub(crate) warnings: Vec<String>,
    /// The other settings, if they stand beside the rules and have changed.
    pub(crate) settings: Option<Box<dyn PreparedSettings>>,
}

/// Returns rules without any set.
pub(super) fn no_rules(options: RuleOptions) -> RuleSets {
    let none = Node {
        value: Value::Map(Vec::new()),
        position: Position { line: 1, column: 1 },
    };
    RuleSets::read(&none, options, &mut Faults::default())
}

/// Returns the lines for warnings about the rules of one file or set: `a.yaml:3:7: warning: …`.
pub(super) fn warning_lines(source: impl fmt::Display, warnings: Vec<Fault>) -> Vec<String> {
    let lines = warnings.into_iter().map(|Fault { position, message }| {
        let Position { line, column } = position;
        format!("{source}:{line}:{column}: warning: {message}")
    });
    lines.collect()
}

/// Returns the rules in a config that holds them itself. `settings` prepares the rest.
pub(super) fn rules_of(
    raw: &RawConfig,
    settings: Option<Arc<dyn Settings>>,
) -> Result<CompiledRules, ReloadError> {
    let mut config = raw.check().map_err(|error| invalid(&error))?;
    let deployment = Deployment::located(&config, |field| raw.place_of(field));
    // The settings do without rules.
    match std::mem::replace(&mut config.rules, Rules::Inline(RuleSets::default())) {
        Rules::Inline(rules) => {
            let mut warnings = raw.rule_warnings(&rules, &deployment);
            warnings.extend(deployment.missing_rule_sets(&rules, "the config"));
            let settings = settings.map(|settings| settings.prepare(raw, config));
            Ok(CompiledRules {
                rules,
                warnings,
                settings: settings.transpose()?.flatten(),
            })
        }
        _ => Err(ReloadError::Unreadable(
            "a change of `rules_from` needs a restart".into(),
        )),
    }
}

/// Runs `work` on a thread that serves no requests.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReloadError> + Send + 'static,
) -> Result<T, ReloadError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ReloadError::Unreadable(error.to_string())))
}
