//! `fluxgate validate`: validates a config, a rule file or a directory of rule files.

use std::io::{self, Write};
use std::path::Path;

use fluxgate_core::RuleSets;
use fluxgate_core::internals::RuleOptions;

use super::Failure;
use crate::config::{Config, RawConfig, Rules};
use crate::reload::rules_in;

pub(super) fn validate(path: &Path) -> Result<(), Failure> {
    let summary = if path.is_dir() {
        count(&rules_in(path, RuleOptions::default())?)
    } else {
        let raw = RawConfig::read(path)?;
        match raw.is_rule_file() {
            true => count(&raw.check_rules()?),
            false => describe(path, &raw.check()?)?,
        }
    };
    // If standard output is closed, the exit code is enough.
    let _ = writeln!(io::stdout(), "{}: ok, {summary}", path.display());
    Ok(())
}

/// Validates the rules that a valid config refers to, prints warnings, and returns a
/// summary.
fn describe(path: &Path, config: &Config) -> Result<String, Failure> {
    let mut warnings = config.warnings();
    let rules = match &config.rules {
        Rules::Inline(rules) => count(rules),
        Rules::Directory { path, .. } if path.is_dir() => {
            let rules = rules_in(path, config.rule_options())?;
            format!("{} from {}", count(&rules), path.display())
        }
        Rules::Directory { path, .. } => {
            let path = path.display();
            warnings.push(format!(
                "the directory {path} does not exist on this machine"
            ));
            format!("rules from {path}")
        }
        Rules::Redis { .. } => "rules from Redis".into(),
    };
    for warning in warnings {
        let _ = writeln!(io::stderr(), "{}: warning: {warning}", path.display());
    }
    Ok(format!("{} listener(s), {rules}", config.listen.count()))
}

fn count(rules: &RuleSets) -> String {
    let count = rules.iter().map(|set| set.rules().len()).sum::<usize>();
    let sets = rules.iter().count();
    format!("{sets} rule set(s) with {count} enabled rule(s)")
}
