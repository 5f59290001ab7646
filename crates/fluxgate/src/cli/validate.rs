//! `fluxgate validate`: validates a config, a rule file or a directory of rule files.

use std::fs;
use std::path::Path;

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RuleOptions;

use super::{Exit, Failure, print, print_message};
use crate::config::{Config, Deployment, JwtKeys, RawConfig, Rules, config_warnings};
use crate::reload::rules_in;

/// Validates a file or a directory. With `strict`, warnings are faults.
pub(super) fn validate(path: &Path, strict: bool) -> Result<(), Failure> {
    let ValidationResult { summary, warnings } = if path.is_dir() {
        let compiled = rules_in(path, RuleOptions::default(), Deployment::default())?;
        ValidationResult {
            summary: count(&compiled.rules),
            warnings: compiled.warnings,
        }
    } else {
        let raw = RawConfig::read(path)?;
        if raw.is_rule_file() {
            let rules = raw.check_rules()?;
            ValidationResult {
                summary: count(&rules),
                warnings: raw.rule_warnings(&rules, &Deployment::default()),
            }
        } else {
            validate_config(path, &raw, &raw.check()?)?
        }
    };
    for warning in &warnings {
        print_message(warning);
    }
    if strict && !warnings.is_empty() {
        let count = warnings.len();
        let message = format!("{}: {count} warning(s), with --strict", path.display());
        return Err(Failure::new(Exit::Config, message));
    }
    // If standard output is closed, the exit code is enough.
    let _ = print(&format!("{}: ok, {summary}\n", path.display()));
    Ok(())
}

/// What validation found, if there are no faults.
struct ValidationResult {
    summary: String,
    /// One line each, with the place.
    warnings: Vec<String>,
}

/// Validates the rules that a valid config refers to.
fn validate_config(
    path: &Path,
    raw: &RawConfig,
    config: &Config,
) -> Result<ValidationResult, Failure> {
    let shown = path.display();
    let mut warnings: Vec<_> = config_warnings(config)
        .into_iter()
        .map(|warning| format!("{shown}: warning: {warning}"))
        .collect();
    let located = |field: &str, message: String| {
        let location = raw
            .location(field)
            .map(|location| location.to_string())
            .unwrap_or_else(|| shown.to_string());
        format!("{location}: warning: {message}")
    };
    for filter in &config.filters {
        let (name, path) = match filter.jwt.as_ref().map(|jwt| &jwt.keys) {
            Some(JwtKeys::JwksFile(path)) => ("jwks_file", path),
            Some(JwtKeys::SecretFile(path)) => ("secret_file", path),
            Some(JwtKeys::JwksUrl(_)) | None => continue,
        };
        let problem = match fs::metadata(path) {
            Err(_) => "does not exist on this machine",
            Ok(file) if file.is_file() && file.len() == 0 => "is empty",
            Ok(_) => continue,
        };
        let field = format!("filters.{}.jwt.{name}", filter.name);
        let message = format!("`{name}`: the file {} {problem}", path.display());
        warnings.push(located(&field, message));
    }
    if let Some((field, path)) = config.rules.cache_file()
        && let Some(directory) = missing_directory(path)
    {
        let message = format!(
            "`{field}`: the directory {} does not exist on this machine, so the rules are not \
             cached",
            directory.display()
        );
        warnings.push(located(field, message));
    }
    let rules = match &config.rules {
        Rules::Inline(rules) => {
            let deployment = Deployment::located(config, |field| raw.place_of(field));
            warnings.extend(raw.rule_warnings(rules, &deployment));
            warnings.extend(deployment.missing_rule_sets(rules, &shown.to_string()));
            count(rules)
        }
        Rules::Directory { path, .. } if path.is_dir() => {
            let deployment = Deployment::located(config, |field| raw.place_of(field));
            let compiled = rules_in(path, config.rule_options(), deployment)?;
            warnings.extend(compiled.warnings);
            format!("{} from {}", count(&compiled.rules), path.display())
        }
        Rules::Directory { path, .. } => {
            let (path, field) = (path.display(), "rules_from.dir");
            let message = format!("`{field}`: the directory {path} does not exist on this machine");
            warnings.push(located(field, message));
            format!("rules from {path}")
        }
        elsewhere => format!("rules from {}", elsewhere.server().unwrap_or_default()),
    };
    Ok(ValidationResult {
        summary: format!("{} listener(s), {rules}", config.listen.count()),
        warnings,
    })
}

/// Returns the directory of a file, if there is none.
fn missing_directory(file: &Path) -> Option<&Path> {
    let directory = file.parent()?;
    // The parent of a plain name is empty: the working directory.
    let exists = directory.as_os_str().is_empty() || directory.is_dir();
    (!exists).then_some(directory)
}

fn count(rules: &RuleSets) -> String {
    let count = rules.iter().map(|set| set.rules().len()).sum::<usize>();
    let sets = rules.iter().count();
    format!("{sets} rule set(s) with {count} enabled rule(s)")
}
