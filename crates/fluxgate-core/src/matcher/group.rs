//! Rules with the same requirements, besides their paths.

use std::ops::ControlFlow;
use std::sync::Arc;

use foldhash::HashMap;
use smallvec::SmallVec;

use super::facts::RequestFacts;
use super::pattern::Pattern;
use super::pattern_set::Patterns;
use super::requirements::{Networks, Part, Requirements, Test};
use super::small_map::SmallMap;
use crate::request_path::RequestPath;

/// The rules that match, as indices in the order of evaluation.
pub(crate) type Matches = SmallVec<[u32; 16]>;

/// The tests of rules that are left to the end of the search.
pub(super) type LateTests = HashMap<u32, Arc<[Test]>>;

/// Rules that require the same parts of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Signature {
    /// The parts besides the one by which it is found.
    others: Vec<Part>,
    /// By the values of all parts.
    groups: SmallMap<Group>,
}

impl Signature {
    /// Inserts a rule, which is found by the first part that it requires.
    pub(super) fn insert(
        signatures: &mut Vec<Self>,
        required: &Requirements,
        rule: u32,
        paths: Option<&[Pattern]>,
    ) {
        let others: Vec<_> = required.parts().skip(1).cloned().collect();
        let same = signatures
            .iter()
            .position(|known| known.others == others)
            .unwrap_or_else(|| {
                signatures.push(Self {
                    others,
                    groups: SmallMap::default(),
                });
                signatures.len() - 1
            });
        for choice in required.choices() {
            let [first, others @ ..] = &choice[..] else {
                continue;
            };
            let mut values = JoinedValues::new();
            others
                .iter()
                .for_each(|other| push_value(&mut values, other));
            values.extend_from_slice(first);
            let groups = &mut signatures[same].groups;
            let group = groups.get_or_insert_with(&values, Group::default);
            group.insert(rule, paths, &required.tests);
        }
    }

    /// Prepares the search, after the last rule.
    pub(super) fn finish(&mut self, late: &mut LateTests) {
        self.groups.for_each(|group| group.finish(late));
    }

    /// Adds the rules whose first part has this value.
    pub(super) fn find(
        &self,
        first: &[u8],
        facts: &RequestFacts<'_, '_>,
        networks: &Networks,
        matches: &mut Matches,
    ) {
        if !self.others.is_empty() {
            let mut values = JoinedValues::new();
            self.find_joined(&self.others, first, &mut values, facts, networks, matches);
        } else if let Some(group) = self.groups.get(first) {
            group.collect(facts, matches);
        }
    }

    /// Adds the rules with these values and those of the other parts that are left. Of a part
    /// that has several values, each is tried; a rule has only a few such parts.
    fn find_joined(
        &self,
        others: &[Part],
        first: &[u8],
        values: &mut JoinedValues,
        facts: &RequestFacts<'_, '_>,
        networks: &Networks,
        matches: &mut Matches,
    ) {
        let start = values.len();
        for (index, other) in others.iter().enumerate() {
            if other.is_multiple() {
                let here = values.len();
                other.for_each_value(facts, networks, |value| {
                    push_value(values, value);
                    let rest = &others[index + 1..];
                    self.find_joined(rest, first, values, facts, networks, matches);
                    values.truncate(here);
                });
                return values.truncate(start);
            }
            let Some(value) = other.value_in(facts) else {
                return values.truncate(start);
            };
            push_value(values, value);
        }
        values.extend_from_slice(first);
        if let Some(group) = self.groups.get(values) {
            group.collect(facts, matches);
        }
        values.truncate(start);
    }
}

/// Up to this many different lists of tests, a group has a section for each.
const FEW_TESTS: usize = 16;

/// Rules that require the same values of the same parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    sections: Vec<Section>,
    /// The rules, until the sections are built.
    rules: Vec<GroupedRule>,
}

#[derive(Clone, Debug)]
struct GroupedRule {
    rule: u32,
    /// `None` matches any path.
    paths: Option<Box<[Pattern]>>,
    tests: Arc<[Test]>,
}

/// Rules of a group with the same tests.
#[derive(Clone, Debug, Default)]
struct Section {
    tests: Arc<[Test]>,
    /// The rules that match any path.
    any_path: Vec<u32>,
    paths: Patterns,
}

impl Group {
    pub(super) fn insert(&mut self, rule: u32, paths: Option<&[Pattern]>, tests: &[Test]) {
        self.rules.push(GroupedRule {
            rule,
            paths: paths.map(Into::into),
            tests: tests.into(),
        });
    }

    /// Builds the sections, after the last rule. If there are many different tests, they are
    /// left to the end of the search, when few rules are left: adds them to `late`.
    pub(super) fn finish(&mut self, late: &mut LateTests) {
        let mut rules = std::mem::take(&mut self.rules);
        let mut different: Vec<Arc<[Test]>> = Vec::new();
        for rule in &rules {
            if different.len() <= FEW_TESTS && !different.contains(&rule.tests) {
                different.push(Arc::clone(&rule.tests));
            }
        }
        if different.len() > FEW_TESTS {
            for rule in &mut rules {
                let tests = std::mem::take(&mut rule.tests);
                if !tests.is_empty() {
                    late.insert(rule.rule, tests);
                }
            }
            different = vec![Arc::default()];
        }
        let sections = different.into_iter();
        self.sections = sections.map(|tests| Section::new(tests, &rules)).collect();
    }

    /// Adds the rules that match a request's path in either form. A rule may be added twice.
    pub(super) fn collect(&self, facts: &RequestFacts<'_, '_>, matches: &mut Matches) {
        for section in &self.sections {
            if section.tests.iter().all(|test| test.passes(facts)) {
                section.collect(facts.context.request_path(), matches);
            }
        }
    }
}

impl Section {
    fn new(tests: Arc<[Test]>, rules: &[GroupedRule]) -> Self {
        let (mut any_path, mut patterns) = (Vec::new(), Vec::new());
        for GroupedRule { rule, paths, .. } in rules.iter().filter(|it| it.tests == tests) {
            match paths {
                None => any_path.push(*rule),
                Some(paths) => patterns.extend(paths.iter().map(|path| (path.clone(), *rule))),
            }
        }
        Self {
            tests,
            any_path,
            paths: Patterns::new(&patterns),
        }
    }

    fn collect(&self, path: Option<&RequestPath<'_>>, matches: &mut Matches) {
        add_all(matches, &self.any_path);
        let Some(path) = path else {
            return;
        };
        for form in path.forms() {
            let _ = self.paths.find(form, |rules| {
                add_all(matches, rules);
                ControlFlow::Continue(())
            });
        }
    }
}

/// Adds rules one by one: most lists have none or one, for which copying a slice costs more.
#[inline]
fn add_all(matches: &mut Matches, rules: &[u32]) {
    for rule in rules {
        matches.push(*rule);
    }
}

/// The values of a signature's parts: those of the others, each after its length, then the first
/// one. No two lists collide, and a single value stays as it is.
type JoinedValues = SmallVec<[u8; 64]>;

/// Adds the value of one of the other parts.
fn push_value(values: &mut JoinedValues, value: &[u8]) {
    values.extend_from_slice(&(value.len() as u64).to_le_bytes());
    values.extend_from_slice(value);
}
