//! Rule files, wherever they are read from.

use std::collections::HashMap;
use std::path::Path;

use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Faults, Node, Value};
use fluxgate_core::{RuleSets, RulesError};

use super::error::{ReloadError, invalid};
use super::snapshot::{CompiledRules, Document, no_rules, warning_lines};
use crate::config::{Deployment, rule_file};

/// Compiles the rules of all files, all or none. `source` names them together.
pub(super) fn compile_files(
    documents: &[Document],
    options: RuleOptions,
    deployment: &Deployment,
    source: &str,
) -> Result<CompiledRules, ReloadError> {
    let mut reader = FileReader {
        rules: no_rules(options),
        options,
        deployment,
        defined_in: HashMap::new(),
        wrong: Vec::new(),
        warnings: Vec::new(),
    };
    for Document { name, content } in documents {
        reader.file(Path::new(name), content);
    }
    if !reader.wrong.is_empty() {
        return Err(ReloadError::Invalid(reader.wrong));
    }
    let missing = deployment.missing_rule_sets(&reader.rules, source);
    reader.warnings.extend(missing);
    Ok(CompiledRules {
        rules: reader.rules,
        warnings: reader.warnings,
        settings: None,
    })
}

/// The rules, faults and warnings found so far.
struct FileReader<'a> {
    rules: RuleSets,
    options: RuleOptions,
    deployment: &'a Deployment,
    /// The file that defines each rule set.
    defined_in: HashMap<String, &'a Path>,
    wrong: Vec<String>,
    warnings: Vec<String>,
}

impl<'a> FileReader<'a> {
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
