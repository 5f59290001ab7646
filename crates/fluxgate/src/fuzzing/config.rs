//! What configurations promise of any bytes.

use std::path::Path;

use fluxgate_core::yaml::Position;

use crate::config::rule_file::RuleFileError;
use crate::config::{ConfigError, FaultLocation, RawConfig};

/// What is good stays good and the same when it is shown and read again; of what is
/// not, every fault is told with its place. Nothing is read that it names.
pub(super) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let shown = match show(text) {
        Ok(shown) => shown,
        Err(error) => return has_places(text, &error),
    };
    let again = show(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
    assert_eq!(without_comments(&again), without_comments(&shown));
}

fn show(text: &str) -> Result<String, ConfigError> {
    RawConfig::parse(Path::new("fluxgate.yaml"), text)?.to_effective_yaml()
}

/// They tell where values come from, which is no longer the same place.
fn without_comments(text: &str) -> Vec<&str> {
    let lines = text.lines();
    let lines = lines.map(|line| line.split(" # ").next().unwrap_or_default());
    let lines = lines.filter(|line| !line.trim_start().starts_with('#'));
    lines.collect()
}

fn has_places(text: &str, error: &ConfigError) {
    let places: Vec<Position> = match error {
        ConfigError::Invalid(faults) => {
            let places = faults.iter().map(|fault| match &fault.location {
                FaultLocation::File { position, .. } => *position,
                FaultLocation::Override(_) => panic!("nothing was overridden"),
            });
            places.collect()
        }
        ConfigError::File(RuleFileError::Invalid { faults, .. }) => {
            faults.0.iter().map(|fault| fault.position).collect()
        }
        ConfigError::File(error) => panic!("{error}"),
    };
    super::rules::are_inside(text, &places);
    assert!(!error.to_string().is_empty());
}
