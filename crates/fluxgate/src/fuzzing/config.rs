//! Configurations and their effective form.

use std::path::Path;

use fluxgate_core::yaml::Position;

use crate::config::rule_file::RuleFileError;
use crate::config::{ConfigError, FaultLocation, RawConfig, effective_yaml};

/// Loads a config. The effective form of a valid config loads again as the same config;
/// every fault of an invalid config has a position. Files that it names are not read.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let effective = match effective(text) {
        Ok(effective) => effective,
        Err(error) => return check_faults(text, &error),
    };
    let again = self::effective(&effective).unwrap_or_else(|error| panic!("{error}\n{effective}"));
    assert_eq!(without_comments(&again), without_comments(&effective));
}

fn effective(text: &str) -> Result<String, ConfigError> {
    effective_yaml(&RawConfig::parse(Path::new("fluxgate.yaml"), text)?)
}

/// Removes the comments, which name the origins of values: these differ.
fn without_comments(text: &str) -> Vec<&str> {
    let lines = text
        .lines()
        .map(|line| line.split(" # ").next().unwrap_or_default())
        .filter(|line| !line.trim_start().starts_with('#'));
    lines.collect()
}

fn check_faults(text: &str, error: &ConfigError) {
    let positions: Vec<Position> = match error {
        ConfigError::Invalid(faults) => {
            let positions = faults.iter().map(|fault| match &fault.location {
                FaultLocation::File { position, .. } => *position,
                FaultLocation::Override(_) => panic!("nothing was overridden"),
            });
            positions.collect()
        }
        ConfigError::File(RuleFileError::Invalid { faults, .. }) => {
            faults.0.iter().map(|fault| fault.position).collect()
        }
        ConfigError::File(error) => panic!("{error}"),
    };
    super::rules::check_positions(text, &positions);
    assert!(!error.to_string().is_empty());
}
