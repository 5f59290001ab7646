//! The config file: its rules and its settings.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fluxgate_core::regular_file;
use fluxgate_core::regular_file::MAX_BYTES;

use super::error::{ReloadError, invalid};
use super::settings::{PreparedSettings, Settings};
use super::snapshot::{CompiledRules, Document, Snapshot, rules_of, run_blocking};
use super::source::{BoxFuture, KnownSnapshots, RuleSource};
use crate::config::{DEFAULT_POLL, Overrides, RawConfig, rule_file};

/// The config file with the overrides of the environment and flags.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) overrides: Overrides,
    /// The config with which the service started.
    started: RawConfig,
    /// The changed settings last logged as needing a restart.
    logged: Mutex<Vec<String>>,
    /// Whether the last valid file had rules; `None` before the first.
    had_rules: Mutex<Option<bool>>,
    /// The settings that follow the file, once they are active.
    settings: OnceLock<Arc<dyn Settings>>,
}

impl ConfigFile {
    /// Creates the source of a file whose config at the start was `started`.
    pub(crate) fn new(path: PathBuf, overrides: Overrides, started: RawConfig) -> Self {
        Self {
            path,
            overrides,
            started,
            logged: Mutex::default(),
            had_rules: Mutex::default(),
            settings: OnceLock::new(),
        }
    }

    /// Prepares the settings of a file whose rules come from elsewhere.
    pub(super) fn settings_of(
        &self,
        snapshot: &Snapshot,
    ) -> Result<Option<Box<dyn PreparedSettings>>, ReloadError> {
        let raw = self.parse(snapshot)?;
        if !raw.is_map() {
            let path = self.path.display();
            let fault = format!("{path}: it is empty or not a mapping");
            return Err(ReloadError::Invalid(vec![fault]));
        }
        let raw = raw.with_overrides(&self.overrides);
        let config = raw.check().map_err(|error| invalid(&error))?;
        let settings = self.settings.get().cloned();
        let prepared = settings.map(|settings| settings.prepare(&raw, config));
        let prepared = prepared.transpose()?.flatten();
        self.warn_of_fixed_fields(&raw);
        Ok(prepared)
    }

    /// Uses these settings from now on.
    pub(crate) fn set_settings(&self, settings: &Arc<dyn Settings>) {
        // They are set once.
        let _ = self.settings.set(Arc::clone(settings));
    }

    fn parse(&self, snapshot: &Snapshot) -> Result<RawConfig, ReloadError> {
        let file = snapshot.documents.first();
        let content = file.map_or(&[][..], |file| &file.content);
        let text = rule_file::decode_utf8(&self.path, content.to_vec())
            .map_err(|error| invalid(&error))?;
        RawConfig::parse(&self.path, &text).map_err(|error| invalid(&error))
    }

    fn truncated(&self, what: &str) -> ReloadError {
        let path = self.path.display();
        ReloadError::Invalid(vec![format!(
            "{path}: {what}; write `rule_sets: {{}}` to remove all rules"
        )])
    }

    /// Logs, once each, the changed settings that are read only at the start.
    fn warn_of_fixed_fields(&self, raw: &RawConfig) {
        let changed = raw.fixed_fields_changed_since(&self.started);
        let mut logged = self.logged.lock().unwrap_or_else(|it| it.into_inner());
        if *logged != changed {
            for field in changed.iter().filter(|field| !logged.contains(field)) {
                tracing::warn!(field = %field, "a changed setting needs a restart");
            }
            *logged = changed;
        }
    }
}

impl RuleSource for ConfigFile {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn poll(&self) -> Duration {
        DEFAULT_POLL
    }

    fn read<'a>(
        &'a self,
        _known: &'a KnownSnapshots,
    ) -> BoxFuture<'a, Result<Arc<Snapshot>, ReloadError>> {
        let path = self.path.clone();
        Box::pin(run_blocking(move || {
            let name = path.display().to_string();
            let content = regular_file::read(&path, MAX_BYTES)
                .map_err(|error| ReloadError::Unreadable(format!("{name}: {error}")))?;
            Ok(Arc::new(Snapshot {
                documents: vec![Document { name, content }],
                ..Snapshot::default()
            }))
        }))
    }

    /// Compiles the rules, and prepares the settings beside them, if the whole file is valid.
    fn compile(&self, snapshot: &Snapshot) -> Result<CompiledRules, ReloadError> {
        let raw = self.parse(snapshot)?;
        let mut had_rules = self.had_rules.lock().unwrap_or_else(|it| it.into_inner());
        // Checked before the overrides, which would turn an empty file into a mapping.
        if had_rules.is_some() && !raw.is_map() {
            return Err(self.truncated("it is empty or not a mapping"));
        }
        let raw = raw.with_overrides(&self.overrides);
        let compiled = rules_of(&raw, self.settings.get().cloned())?;
        // A truncated file looks like this, and must not lift all limits.
        if *had_rules == Some(true) && !raw.defines_rules() {
            return Err(self.truncated("`rule_sets` is missing"));
        }
        *had_rules = Some(compiled.rules.iter().next().is_some());
        drop(had_rules);
        self.warn_of_fixed_fields(&raw);
        Ok(compiled)
    }

    fn follow(&self, settings: &Arc<dyn Settings>) -> bool {
        self.set_settings(settings);
        true
    }

    fn watched(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}

impl fmt::Display for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the config file {}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITED: &str = "on_missing_rule_set: deny\nrule_sets:\n  s:\n    rules:\n      \
                           - { id: r, scope: global, bands: [ { capacity: 1, window: 1h } ] }\n";

    /// Reads the texts in turn, with an override; returns the number of rule sets of
    /// each, or `None` where it is refused.
    fn read(texts: &[&str]) -> Vec<Option<usize>> {
        let overrides = Overrides::default().and_flags(["on_missing_rule_set=deny"]);
        let file = ConfigFile::new("f.yaml".into(), overrides, RawConfig::demo());
        let read = texts.iter().map(|text| {
            let document = Document {
                name: "f.yaml".into(),
                content: text.as_bytes().to_vec(),
            };
            let compiled = file.compile(&Snapshot {
                documents: vec![document],
                ..Snapshot::default()
            });
            compiled.ok().map(|it| it.rules.iter().count())
        });
        read.collect()
    }

    #[test]
    fn a_file_that_was_cut_off_lifts_no_limit() {
        for cut in [
            "",
            "# all that is left",
            "on_missing_rule_set: deny\n",
            "rule_sets:\n",
            "rule_sets",
        ] {
            assert_eq!(
                read(&[LIMITED, cut, LIMITED]),
                [Some(1), None, Some(1)],
                "{cut}"
            );
        }
    }

    #[test]
    fn no_rules_are_meant_where_they_are_said() {
        let none = "rule_sets: {}";
        assert_eq!(
            read(&[LIMITED, none, "rule_sets:"]),
            [Some(1), Some(0), Some(0)]
        );
        assert_eq!(read(&["", LIMITED]), [Some(0), Some(1)]);
    }
}
