//! Rules in the config file.

use std::path::PathBuf;
use std::sync::Mutex;

use fluxgate_core::RuleSets;

use super::source::{Content, Refusal, invalid, rules_of};
use crate::config::{Draft, Overrides, rule_file};
use crate::watch::regular_file::{self, MAX_BYTES};

/// The config file, and what the environment and flags change in it.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) overrides: Overrides,
    /// As it was at the start.
    started: Draft,
    /// What was last said to need a restart.
    told: Mutex<Vec<String>>,
    /// Whether there were rules in what was last good; nothing before the first.
    had_rules: Mutex<Option<bool>>,
}

impl ConfigFile {
    /// A file that was `started` when the service started.
    pub(crate) fn new(path: PathBuf, overrides: Overrides, started: Draft) -> Self {
        Self {
            path,
            overrides,
            started,
            told: Mutex::default(),
            had_rules: Mutex::default(),
        }
    }

    pub(super) fn content(&self) -> Result<Content, Refusal> {
        let bytes = regular_file::read(&self.path, MAX_BYTES);
        let bytes = bytes
            .map_err(|error| Refusal::Unreadable(format!("{}: {error}", self.path.display())))?;
        Ok(Content::Files(vec![(self.path.clone(), bytes)]))
    }

    /// The rules, if the whole file is good. Other settings are not taken.
    pub(super) fn compile(&self, files: &[(PathBuf, Vec<u8>)]) -> Result<RuleSets, Refusal> {
        let bytes = files.first().map_or(&[][..], |(_, bytes)| bytes);
        let text = rule_file::text_of(&self.path, bytes.to_vec());
        let text = text.map_err(|error| invalid(&error))?;
        let draft = Draft::parse(&self.path, &text).map_err(|error| invalid(&error))?;
        let mut had_rules = self.had_rules.lock().unwrap_or_else(|it| it.into_inner());
        // Overrides would make something of nothing.
        if had_rules.is_some() && !draft.is_map() {
            return Err(self.cut_off("it is empty, or no mapping"));
        }
        let draft = draft.with(&self.overrides);
        let rules = rules_of(&draft)?;
        // A file that was cut off looks like this, and must not lift all limits.
        if *had_rules == Some(true) && !draft.says_rules() {
            return Err(self.cut_off("there are no `rule_sets` any more"));
        }
        *had_rules = Some(rules.iter().next().is_some());
        drop(had_rules);
        self.tell_of_others(&draft);
        Ok(rules)
    }

    fn cut_off(&self, what: &str) -> Refusal {
        let path = self.path.display();
        Refusal::Invalid(vec![format!(
            "{path}: {what}; say `rule_sets: {{}}` if no rules are meant"
        )])
    }

    /// Says, once, which settings have changed that are read at the start only.
    fn tell_of_others(&self, draft: &Draft) {
        let changed = draft.fixed_fields_changed_since(&self.started);
        let mut told = self.told.lock().unwrap_or_else(|it| it.into_inner());
        if *told != changed {
            for field in changed.iter().filter(|field| !told.contains(field)) {
                tracing::warn!(field = %field, "a changed setting needs a restart");
            }
            *told = changed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITED: &str = "on_missing_rule_set: deny\nrule_sets:\n  s:\n    rules:\n      \
                           - { id: r, scope: global, bands: [ { capacity: 1, window: 1h } ] }\n";

    /// How many sets there are after each of these, with an override; nothing
    /// where it is refused.
    fn read(texts: &[&str]) -> Vec<Option<usize>> {
        let overrides = Overrides::default().and_flags(["on_missing_rule_set=deny"]);
        let file = ConfigFile::new("f.yaml".into(), overrides, Draft::demo());
        let read = texts.iter().map(|text| {
            let rules = file.compile(&[("f.yaml".into(), text.as_bytes().to_vec())]);
            rules.ok().map(|rules| rules.iter().count())
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
