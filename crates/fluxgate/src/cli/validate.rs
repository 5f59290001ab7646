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
            false => describe(path, &raw, &raw.check()?)?,
        }
    };
    // If standard output is closed, the exit code is enough.
    let _ = writeln!(io::stdout(), "{}: ok, {summary}", path.display());
    Ok(())
}

/// Validates the rules that a valid config refers to, prints warnings, and returns a
/// summary.
fn describe(path: &Path, raw: &RawConfig, config: &Config) -> Result<String, Failure> {
    let shown = path.display();
    let warnings = config.warnings();
    let mut warnings: Vec<_> = warnings
        .into_iter()
        .map(|warning| format!("{shown}: warning: {warning}"))
        .collect();
    let rules = match &config.rules {
        Rules::Inline(rules) => count(rules),
        Rules::Directory { path, .. } if path.is_dir() => {
            let rules = rules_in(path, config.rule_options())?;
            format!("{} from {}", count(&rules), path.display())
        }
        Rules::Directory { path, .. } => {
            let (path, field) = (path.display(), "rules_from.dir");
            // The field is in the file: without it the rules would be inline.
            let location = raw.location(field).map(|location| location.to_string());
            let location = location.unwrap_or_else(|| shown.to_string());
            warnings.push(format!(
                "{location}: warning: `{field}`: the directory {path} does not exist on this machine"
            ));
            format!("rules from {path}")
        }
        Rules::Redis { .. } => "rules from Redis".into(),
    };
    for warning in warnings {
        let _ = writeln!(io::stderr(), "{warning}");
    }
    Ok(format!("{} listener(s), {rules}", config.listen.count()))
}

fn count(rules: &RuleSets) -> String {
    let count = rules.iter().map(|set| set.rules().len()).sum::<usize>();
    let sets = rules.iter().count();
    format!("{sets} rule set(s) with {count} enabled rule(s)")
}
