//! Which rules match a request, for all rules at once.
//!
//! Rules are grouped by what they ask of method, headers and attributes: first
//! by the names they ask about, then, in a hash table, by the values they ask
//! for. Each group has one trie of its plain path patterns; those with
//! wildcards are found by the texts in them, if they are many. So the cost
//! depends on the request and on the rules that apply, not on how many rules
//! there are.

mod alive;
#[cfg(test)]
mod cost;
mod fit;
mod glob;
mod index;
mod lookup;
mod path;
mod pattern;
mod runs;
mod seen;
mod segments;
mod set;
mod shape;
mod work;

use std::ops::ControlFlow;

use hashbrown::HashMap;

use lookup::Lookup;
pub use pattern::{Pattern, PatternError};
pub use set::PathSet;
use set::Patterns;

use crate::context::RequestContext;
use crate::request_path::RequestPath;
use crate::small::Small;

/// The rules that matched, as indices in the order of evaluation.
pub(crate) type Matches = Small<u32, 16>;

/// What a rule asks of a request. `None` asks nothing.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) paths: Option<Vec<Pattern>>,
    pub(crate) methods: Option<Vec<Box<str>>>,
    /// Names in lower case.
    pub(crate) headers: Vec<(Box<str>, Box<str>)>,
    pub(crate) attributes: Vec<(Box<str>, Box<str>)>,
}

/// A part of a request that a rule may want to have a certain value.
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
    /// The rules that ask only for a path, or for nothing.
    plain: Group,
    /// The others, by the field that the fewest rules ask about.
    fields: Vec<(Field, Vec<Signature>)>,
    /// Where each of `fields` stands, for when they are too many to walk.
    places: HashMap<Field, usize>,
}

/// Rules that ask about the same fields.
#[derive(Clone, Debug, Default)]
struct Signature {
    /// The fields besides the one it is found by.
    others: Vec<Field>,
    /// By the values of all fields.
    groups: Lookup<Group>,
}

/// Rules that ask for the same values of the same fields.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Those that take any path.
    any_path: Vec<u32>,
    paths: Patterns,
    /// What `paths` is to be made of, until it is.
    asked: Vec<(Pattern, u32)>,
}

impl Group {
    fn insert(&mut self, rule: u32, paths: Option<&[Pattern]>) {
        match paths {
            None => self.any_path.push(rule),
            Some(patterns) => {
                let asked = patterns.iter().map(|pattern| (pattern.clone(), rule));
                self.asked.extend(asked);
            }
        }
    }

    /// No more rules will come.
    fn finish(&mut self) {
        self.paths = Patterns::new(&std::mem::take(&mut self.asked));
    }

    /// Adds the rules that match a path in either form; one may be added twice.
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
type Values = Small<u8, 64>;

/// The others with their lengths, then the first: no two lists meet, and one
/// value alone is itself. `None` if one of them is missing.
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
    /// `conditions` in the order of evaluation.
    pub(crate) fn new(conditions: Vec<Conditions>) -> Self {
        let mut asked: HashMap<Field, usize> = HashMap::new();
        let wanted: Vec<_> = conditions.iter().map(Conditions::wanted).collect();
        for (field, _) in wanted.iter().flatten() {
            *asked.entry(field.clone()).or_default() += 1;
        }
        let mut matcher = Self::default();
        for (rule, (conditions, mut wanted)) in conditions.iter().zip(wanted).enumerate() {
            let rule = rule as u32;
            let paths = conditions.paths.as_deref();
            // The rarest field first: that is the one to find the rule by.
            wanted.sort_by(|(a, _), (b, _)| (asked[a], a).cmp(&(asked[b], b)));
            let Some(((first, _), others)) = wanted.split_first() else {
                matcher.plain.insert(rule, paths);
                continue;
            };
            let place = *matcher.places.entry_ref(first).or_insert_with(|| {
                matcher.fields.push((first.clone(), Vec::new()));
                matcher.fields.len() - 1
            });
            let signatures = &mut matcher.fields[place].1;
            let is_same = |signature: &Signature| {
                let known = signature.others.iter();
                known.eq(others.iter().map(|(field, _)| field))
            };
            let index = signatures.iter().position(is_same).unwrap_or_else(|| {
                signatures.push(Signature {
                    others: others.iter().map(|(field, _)| field.clone()).collect(),
                    groups: Lookup::default(),
                });
                signatures.len() - 1
            });
            for choice in each_choice(&wanted) {
                let [first, others @ ..] = &choice[..] else {
                    continue;
                };
                let others = others.iter().map(|other| Some(other.as_bytes()));
                let values = joined(others, first.as_bytes());
                let groups = &mut signatures[index].groups;
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

    /// Adds the rules whose conditions hold, `not_path` apart.
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
            // A rule may have matched by several of its patterns, or in both forms of
            // the path.
            matches.sort_unstable();
            matches.dedup();
        }
    }

    /// Walks the request's own fields, for rule sets that know many more.
    fn find_by_request(&self, context: &RequestContext<'_>, matches: &mut Matches) {
        let headers = context.headers.iter();
        let headers = headers.map(|(name, _)| Field::Header(name.to_ascii_lowercase().into()));
        let attributes = context.attributes.iter();
        let attributes = attributes.filter_map(|(name, _)| {
            // No rule asks about a name that is not text.
            Some(Field::Attribute(str::from_utf8(name).ok()?.into()))
        });
        let fields = std::iter::once(Field::Method).chain(headers);
        for field in fields.chain(attributes) {
            // Not the value beside the name: of two headers the first counts.
            if let Some(place) = self.places.get(&field)
                && let Some(value) = field.value_in(context)
            {
                find_by(&self.fields[*place].1, value, context, matches);
            }
        }
    }
}

/// The rules of these signatures, which are found by a field of this value.
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
    /// The fields asked about, and the values that will do for each.
    fn wanted(&self) -> Vec<(Field, Vec<Box<str>>)> {
        let mut wanted = Vec::new();
        if let Some(methods) = &self.methods {
            wanted.push((Field::Method, methods.clone()));
        }
        for (name, value) in &self.headers {
            wanted.push((Field::Header(name.clone()), vec![value.clone()]));
        }
        for (name, value) in &self.attributes {
            wanted.push((Field::Attribute(name.clone()), vec![value.clone()]));
        }
        wanted
    }
}

/// Each way to choose one value for every field. Only methods have several.
fn each_choice(wanted: &[(Field, Vec<Box<str>>)]) -> Vec<Vec<&str>> {
    let mut choices: Vec<Vec<&str>> = vec![Vec::new()];
    for (_, values) in wanted {
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
