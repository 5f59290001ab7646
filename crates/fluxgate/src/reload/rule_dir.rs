//! Rules in the files of a directory.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fluxgate_core::regular_file::MAX_BYTES;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Faults, Node, Value};
use fluxgate_core::{RuleSets, RulesError, regular_file};

use super::snapshot::{
    CompiledRules, DirectoryFiles, ReloadError, Snapshot, invalid, no_rules, warning_lines,
};
use crate::config::{Deployment, rule_file};

/// How often a directory is read until two passes agree.
const MAX_PASSES: usize = 5;

/// Reads and compiles the rules of all files in a directory, all or none.
pub(crate) fn rules_in(
    path: &Path,
    options: RuleOptions,
    deployment: Deployment,
) -> Result<CompiledRules, ReloadError> {
    let dir = RuleDir {
        path: path.to_owned(),
        poll: Duration::ZERO,
        options,
        deployment,
    };
    dir.compile(&dir.settled()?)
}

/// A directory in which every `*.yaml` holds `rule_sets`.
#[derive(Debug)]
pub(crate) struct RuleDir {
    pub(super) path: PathBuf,
    pub(super) poll: Duration,
    pub(super) options: RuleOptions,
    pub(super) deployment: Deployment,
}

impl RuleDir {
    /// Reads the files, in the order of their names.
    pub(super) fn snapshot(&self, active: Option<&Snapshot>) -> Result<Snapshot, ReloadError> {
        let files = self.settled()?;
        // An unmounted volume looks the same, and must not lift all limits.
        let had_some = matches!(active, Some(Snapshot::Directory(it)) if !it.files.is_empty());
        if files.files.is_empty() && had_some {
            let path = self.path.display();
            return Err(ReloadError::Unreadable(format!(
                "{path}: there is no *.yaml any more; for no rules at all, say `rule_sets: {{}}`"
            )));
        }
        Ok(Snapshot::Directory(files))
    }

    /// Reads the files until two passes agree.
    fn settled(&self) -> Result<DirectoryFiles, ReloadError> {
        settled(|| self.read()).unwrap_or_else(|| {
            let path = self.path.display();
            Err(ReloadError::Unreadable(format!(
                "{path}: it changes while it is read"
            )))
        })
    }

    /// Reads the files in one pass, which may mix old and new ones while files are
    /// being replaced.
    fn read(&self) -> Result<DirectoryFiles, ReloadError> {
        let unreadable = |path: &Path, error: std::io::Error| {
            ReloadError::Unreadable(format!("{}: {error}", path.display()))
        };
        let entries = fs::read_dir(&self.path).map_err(|error| unreadable(&self.path, error))?;
        let paths = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>();
        let mut paths = paths.map_err(|error| unreadable(&self.path, error))?;
        paths.retain(|path| is_yaml_file(path));
        // Sorted, so that errors come in a stable order.
        paths.sort();
        let (paths, ignored): (Vec<_>, Vec<_>) =
            paths.into_iter().partition(|path| is_rule_file(path));
        let files = paths
            .into_iter()
            .map(|path| {
                let bytes = regular_file::read(&path, MAX_BYTES)
                    .map_err(|error| unreadable(&path, error))?;
                Ok((path, bytes))
            })
            .collect::<Result<_, _>>()?;
        Ok(DirectoryFiles { files, ignored })
    }

    /// Compiles the rules of all files, all or none.
    pub(super) fn compile(&self, read: &DirectoryFiles) -> Result<CompiledRules, ReloadError> {
        let mut reader = DirectoryReader {
            rules: no_rules(self.options),
            options: self.options,
            deployment: &self.deployment,
            defined_in: HashMap::new(),
            wrong: Vec::new(),
            warnings: Vec::new(),
        };
        for (path, bytes) in &read.files {
            reader.file(path, bytes);
        }
        let path = self.path.display().to_string();
        let ignored = ignored_files(read).map(|message| format!("{path}: warning: {message}"));
        reader.warnings.extend(ignored);
        let missing = self.deployment.missing_rule_sets(&reader.rules, &path);
        reader.warnings.extend(missing);
        if reader.wrong.is_empty() {
            Ok(CompiledRules {
                rules: reader.rules,
                warnings: reader.warnings,
            })
        } else {
            Err(ReloadError::Invalid(reader.wrong))
        }
    }
}

/// Returns a warning if there are no rule files, or files whose names prevent that they are
/// read.
fn ignored_files(DirectoryFiles { files, ignored }: &DirectoryFiles) -> Option<String> {
    let names: Vec<_> = ignored
        .iter()
        .filter_map(|path| path.file_name())
        .map(|name| name.to_string_lossy())
        .collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let names = names.join(", ");
    match (files.is_empty(), ignored.is_empty()) {
        (true, true) => Some("there is no *.yaml file, so there are no rules".into()),
        (true, false) => Some(format!("there is no *.yaml file; {names} {verb} ignored")),
        (false, false) => Some(format!(
            "{names} {verb} ignored; only *.yaml files are read"
        )),
        (false, true) => None,
    }
}

/// Reads until two passes in a row agree; `None` if they never do.
fn settled<T: PartialEq>(mut read: impl FnMut() -> T) -> Option<T> {
    let mut last = read();
    for _ in 1..MAX_PASSES {
        let now = read();
        if now == last {
            return Some(now);
        }
        last = now;
    }
    None
}

/// The rules, faults and warnings found so far.
struct DirectoryReader<'a> {
    rules: RuleSets,
    options: RuleOptions,
    deployment: &'a Deployment,
    /// The file that defines each rule set.
    defined_in: HashMap<String, &'a Path>,
    wrong: Vec<String>,
    warnings: Vec<String>,
}

impl<'a> DirectoryReader<'a> {
    fn file(&mut self, path: &'a Path, bytes: &[u8]) {
        let text = rule_file::decode_utf8(path, bytes.to_vec());
        let root = text.and_then(|text| {
            Node::parse(&text).map_err(|fault| rule_file::invalid(path, RulesError(vec![fault])))
        });
        let root = match root {
            Ok(root) => root,
            Err(error) => return self.note(&error),
        };
        let mut faults = Faults::default();
        let [sets] = root.fields("a rule file", ["rule_sets"], &mut faults);
        match sets {
            Some(sets) => {
                self.claim(path, sets, &mut faults);
                let rules = RuleSets::read(sets, self.options, &mut faults);
                if faults.count() == 0 {
                    let warnings = self.deployment.warnings(&rules, sets);
                    let warnings = warning_lines(path.display(), warnings);
                    self.warnings.extend(warnings);
                }
                self.rules.extend(rules);
            }
            // A fault was already added if the root is no mapping.
            None if faults.count() == 0 => faults.add(root.position, "`rule_sets` is missing"),
            None => {}
        }
        if faults.count() > 0 {
            self.note(&rule_file::invalid(path, RulesError(faults.into_sorted())));
        }
    }

    /// Adds a fault for each rule set that another file defines already.
    fn claim(&mut self, path: &'a Path, sets: &Node, faults: &mut Faults) {
        let Value::Map(pairs) = &sets.value else {
            return;
        };
        for (key, _) in pairs {
            let Some(name) = key.as_text() else { continue };
            match self.defined_in.get(name) {
                Some(other) if *other != path => faults.add(
                    key.position,
                    format!("rule set `{name}` is already in {}", other.display()),
                ),
                // `RuleSets::read` reports duplicates within one file.
                Some(_) => {}
                None => {
                    self.defined_in.insert(name.to_owned(), path);
                }
            }
        }
    }

    fn note(&mut self, error: &impl std::fmt::Display) {
        if let ReloadError::Invalid(faults) = invalid(error) {
            self.wrong.extend(faults);
        }
    }
}

/// Returns whether the name of a file ends in `.yaml`, exactly.
fn is_rule_file(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "yaml")
}

/// Returns whether a path is a file that is not hidden and ends in `.yaml` or `.yml`, in any
/// case.
fn is_yaml_file(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_yaml = path.extension().is_some_and(|extension| {
        extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml")
    });
    // `is_dir` follows links: Kubernetes mounts volumes as links.
    !hidden && is_yaml && !path.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_while_it_is_read_is_read_again() {
        let after = |passes: &[u8]| {
            let mut passes = passes.iter();
            settled(|| passes.next().copied().unwrap())
        };
        assert_eq!(after(&[1, 1]), Some(1));
        assert_eq!(after(&[1, 2, 3, 3]), Some(3));
        assert_eq!(after(&[1, 2, 1, 2, 2]), Some(2));
        assert_eq!(after(&[1, 2, 1, 2, 1]), None);
    }
}
