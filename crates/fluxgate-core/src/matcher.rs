//! Finds the rules that match a request, for all rules in one pass.
//!
//! Rules are grouped by their conditions on method, headers and attributes: first by the
//! names, then, in a hash table, by the values. Each group has one trie of its plain path
//! patterns; if there are many with wildcards, they are found by their literal fragments.
//! So the cost depends on the request and on the rules that match, not on the number of
//! rules.

mod active_nodes;
mod found;
mod fragments;
mod glob_trie;
mod index;
mod path_trie;
mod pattern;
mod pattern_set;
mod segments;
mod shape;
mod small_map;
mod steps;
mod verify;

use std::ops::ControlFlow;

use foldhash::HashMap;
use smallvec::SmallVec;

use crate::context::RequestContext;
use crate::request_path::RequestPath;
pub use pattern::{Pattern, PatternError};
pub use pattern_set::PathSet;
use pattern_set::Patterns;
use small_map::SmallMap;

/// The rules that match, as indices in the order of evaluation.
pub(crate) type Matches = SmallVec<[u32; 16]>;

/// The conditions of a rule. `None` matches every request.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) paths: Option<Vec<Pattern>>,
    pub(crate) methods: Option<Vec<Box<str>>>,
    /// Names in lower case.
    pub(crate) headers: Vec<(Box<str>, Box<str>)>,
    pub(crate) attributes: Vec<(Box<str>, Box<str>)>,
}

/// A part of a request that a rule may require to have a certain value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Field {
    Method,
    Header(Box<str>),
    Attribute(Box<str>),
}

impl Field {
    fn value_in<'c>(&self, context: &'c RequestContext<'_>) -> Option<&'c [u8]> {
        match self {
            Self::Method => context.method().map(str::as_bytes),
            Self::Header(name) => context.header(name).map(str::as_bytes),
            Self::Attribute(name) => context.attribute_bytes(name),
        }
    }
}

/// All conditions of a rule set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matcher {
    /// The rules with a condition on the path only, or with none.
    plain: Group,
    /// The others, by the field that the fewest rules use.
    fields: Vec<(Field, Vec<Signature>)>,
    /// The index of each field in `fields`, for when they are too many to scan.
    indices: HashMap<Field, usize>,
}

/// Rules with conditions on the same fields.
#[derive(Clone, Debug, Default)]
struct Signature {
    /// The fields besides the one by which it is found.
    others: Vec<Field>,
    /// By the values of all fields.
    groups: SmallMap<Group>,
}

/// Rules that require the same values of the same fields.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Those that match any path.
    any_path: Vec<u32>,
    paths: Patterns,
    /// The content of `paths`, until that is built.
    patterns: Vec<(Pattern, u32)>,
}

impl Group {
    fn insert(&mut self, rule: u32, paths: Option<&[Pattern]>) {
        match paths {
            None => self.any_path.push(rule),
            Some(patterns) => {
                let patterns = patterns.iter().map(|pattern| (pattern.clone(), rule));
                self.patterns.extend(patterns);
            }
        }
    }

    /// Builds `paths`, after the last rule.
    fn finish(&mut self) {
        self.paths = Patterns::new(&std::mem::take(&mut self.patterns));
    }

    /// Adds the rules that match a path in either form. A rule may be added twice.
    fn collect(&self, path: Option<&RequestPath<'_>>, matches: &mut Matches) {
        matches.extend_from_slice(&self.any_path);
        let Some(path) = path else {
            return;
        };
        for form in std::iter::once(path.raw()).chain(path.other()) {
            let _ = self.paths.find(form, |rules| {
                matches.extend_from_slice(rules);
                ControlFlow::Continue(())
            });
        }
    }
}

/// The values of a signature's fields.
type Values = SmallVec<[u8; 64]>;

/// Joins the other values with their lengths, then the first one. No two lists collide,
/// and a single value stays as it is. Returns `None` if a value is missing.
fn joined<'v>(others: impl Iterator<Item = Option<&'v [u8]>>, first: &[u8]) -> Option<Values> {
    let mut values = Values::new();
    for other in others {
        let other = other?;
        values.extend_from_slice(&(other.len() as u64).to_le_bytes());
        values.extend_from_slice(other);
    }
    values.extend_from_slice(first);
    Some(values)
}

impl Matcher {
    /// Builds the matcher of rules with these conditions, in the order of evaluation.
    pub(crate) fn new(conditions: Vec<Conditions>) -> Self {
        let mut uses: HashMap<Field, usize> = HashMap::default();
        let required: Vec<_> = conditions.iter().map(Conditions::required).collect();
        for (field, _) in required.iter().flatten() {
            *uses.entry(field.clone()).or_default() += 1;
        }
        let mut matcher = Self::default();
        for (rule, (conditions, mut required)) in conditions.iter().zip(required).enumerate() {
            let rule = rule as u32;
            let paths = conditions.paths.as_deref();
            // The rule is found by its rarest field.
            required.sort_by(|(a, _), (b, _)| (uses[a], a).cmp(&(uses[b], b)));
            let Some(((first, _), others)) = required.split_first() else {
                matcher.plain.insert(rule, paths);
                continue;
            };
            let index = *matcher.indices.entry(first.clone()).or_insert_with(|| {
                matcher.fields.push((first.clone(), Vec::new()));
                matcher.fields.len() - 1
            });
            let signatures = &mut matcher.fields[index].1;
            let is_same = |signature: &Signature| {
                let known = signature.others.iter();
                known.eq(others.iter().map(|(field, _)| field))
            };
            let signature = signatures.iter().position(is_same).unwrap_or_else(|| {
                signatures.push(Signature {
                    others: others.iter().map(|(field, _)| field.clone()).collect(),
                    groups: SmallMap::default(),
                });
                signatures.len() - 1
            });
            for choice in each_choice(&required) {
                let [first, others @ ..] = &choice[..] else {
                    continue;
                };
                let others = others.iter().map(|other| Some(other.as_bytes()));
                let values = joined(others, first.as_bytes());
                let groups = &mut signatures[signature].groups;
                let group = groups.get_or_insert_with(&values.unwrap_or_default(), Group::default);
                group.insert(rule, paths);
            }
        }
        matcher.plain.finish();
        let signatures = matcher.fields.iter_mut().flat_map(|(_, known)| known);
        for signature in signatures {
            signature.groups.for_each(Group::finish);
        }
        matcher
    }

    /// Adds the rules whose conditions hold, except for `not_path`.
    pub(crate) fn find(&self, context: &RequestContext<'_>, matches: &mut Matches) {
        self.plain.collect(context.request_path(), matches);
        let in_request = context.headers.len() + context.attributes.len();
        if self.fields.len() <= in_request + 1 {
            for (field, signatures) in &self.fields {
                if let Some(value) = field.value_in(context) {
                    find_by(signatures, value, context, matches);
                }
            }
        } else {
            self.find_by_request(context, matches);
        }
        if matches.len() > 1 {
            // A rule may match by several of its patterns, or in both forms of the path.
            matches.sort_unstable();
            matches.dedup();
        }
    }

    /// Like [`Matcher::find`], for rule sets with many more fields than the request.
    fn find_by_request(&self, context: &RequestContext<'_>, matches: &mut Matches) {
        let headers = context.headers.iter();
        let headers = headers.map(|(name, _)| Field::Header(name.to_ascii_lowercase().into()));
        let attributes = context.attributes.iter();
        let attributes = attributes.filter_map(|(name, _)| {
            // No rule has a name that is not text.
            Some(Field::Attribute(str::from_utf8(name).ok()?.into()))
        });
        let fields = std::iter::once(Field::Method).chain(headers);
        for field in fields.chain(attributes) {
            // Of two headers with one name, the first counts.
            if let Some(index) = self.indices.get(&field)
                && let Some(value) = field.value_in(context)
            {
                find_by(&self.fields[*index].1, value, context, matches);
            }
        }
    }
}

/// Adds the rules of signatures whose first field has this value.
fn find_by(
    signatures: &[Signature],
    value: &[u8],
    context: &RequestContext<'_>,
    matches: &mut Matches,
) {
    for signature in signatures {
        let group = if signature.others.is_empty() {
            signature.groups.get(value)
        } else {
            let others = signature.others.iter();
            let others = others.map(|other| other.value_in(context));
            joined(others, value).and_then(|values| signature.groups.get(&values))
        };
        if let Some(group) = group {
            group.collect(context.request_path(), matches);
        }
    }
}

impl Conditions {
    /// Returns the required fields, each with the values that match.
    fn required(&self) -> Vec<(Field, Vec<Box<str>>)> {
        let mut required = Vec::new();
        if let Some(methods) = &self.methods {
            required.push((Field::Method, methods.clone()));
        }
        for (name, value) in &self.headers {
            required.push((Field::Header(name.clone()), vec![value.clone()]));
        }
        for (name, value) in &self.attributes {
            required.push((Field::Attribute(name.clone()), vec![value.clone()]));
        }
        required
    }
}

/// Returns each way to choose one value for every field. Only methods have several.
fn each_choice(required: &[(Field, Vec<Box<str>>)]) -> Vec<Vec<&str>> {
    let mut choices: Vec<Vec<&str>> = vec![Vec::new()];
    for (_, values) in required {
        choices = choices
            .iter()
            .flat_map(|chosen| {
                values
                    .iter()
                    .map(|value| [&chosen[..], &[&**value]].concat())
            })
            .collect();
    }
    choices
}
