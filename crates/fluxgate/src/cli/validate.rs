//! `fluxgate validate`: whether a config, a rule file or a directory of rule files
//! is any good.

use std::io::{self, Write};
use std::path::Path;

use fluxgate_core::{RuleOptions, RuleSets};

use super::Failure;
use crate::config::{Config, RawConfig, Rules};
use crate::reload::rules_in;

pub(super) fn validate(path: &Path) -> Result<(), Failure> {
    let told = if path.is_dir() {
        count(&rules_in(path, RuleOptions::default())?)
    } else {
        let raw = RawConfig::read(path)?;
        match raw.is_rule_file() {
            true => count(&raw.check_rules()?),
            false => checked(path, &raw.check()?)?,
        }
    };
    // Whoever closed standard output wants only the exit code.
    let _ = writeln!(io::stdout(), "{}: ok, {told}", path.display());
    Ok(())
}

/// What there is to tell of a good config, if the rules beside it are good, too.
fn checked(path: &Path, config: &Config) -> Result<String, Failure> {
    let mut warnings = config.warnings();
    let rules = match &config.rules {
        Rules::Inline(rules) => count(rules),
        Rules::Directory { path, .. } if path.is_dir() => {
            let rules = rules_in(path, config.rule_options())?;
            format!("{} from {}", count(&rules), path.display())
        }
        Rules::Directory { path, .. } => {
            // It may be on another machine.
            let path = path.display();
            warnings.push(format!("there is no directory {path} here"));
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
