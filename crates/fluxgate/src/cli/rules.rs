//! The rules of commands that need no server.

use std::path::Path;

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RuleOptions;

use super::{Exit, Failure};
use crate::config::{Deployment, RawConfig, Rules};
use crate::reload::rules_in;

/// Reads the rules of a rule file, a config or a directory. `instead` says what to do if
/// they are in Redis.
pub(super) fn load(path: &Path, instead: &str) -> Result<RuleSets, Failure> {
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
        Rules::Redis { .. } => Err(Failure::new(
            Exit::Config,
            format!("{}: the rules are in Redis; {instead}", path.display()),
        )),
    }
}
