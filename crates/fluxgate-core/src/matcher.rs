//! Which rules match a request, for all rules at once.
//!
//! Rules are grouped by what they ask of method, headers and attributes: first
//! by the names they ask about, then, in a hash table, by the values they ask
//! for. Each group has one trie of all its path patterns. So the cost depends
//! on the request and on the rules that apply, not on how many rules there are.

mod glob;
mod path;
mod pattern;

use std::ops::ControlFlow;

use hashbrown::HashMap;

pub(crate) use path::PathSet;
use path::PathTrie;
pub(crate) use pattern::Pattern;

use crate::context::RequestContext;
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
    fn value_in<'c>(&self, context: &'c RequestContext<'_>) -> Option<&'c str> {
        match self {
            Self::Method => context.method(),
            Self::Header(name) => context.header(name),
            Self::Attribute(name) => context.attribute(name),
        }
    }
}

/// All conditions of a rule set.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    /// The rules that ask only for a path, or for nothing.
    plain: Group,
    /// The others, by the field that the fewest rules ask about.
    by_field: HashMap<Field, Vec<Signature>>,
    /// The keys of `by_field`, to walk them when they are few.
    fields: Vec<Field>,
}

/// Rules that ask about the same fields.
#[derive(Debug, Default)]
struct Signature {
    /// The fields besides the one it is found by.
    others: Vec<Field>,
    /// By the values of all fields.
    groups: HashMap<Box<[u8]>, Group>,
}

/// Rules that ask for the same values of the same fields.
#[derive(Debug, Default)]
struct Group {
    /// Those that take any path.
    any_path: Vec<u32>,
    paths: PathTrie,
}

impl Group {
    fn insert(&mut self, rule: u32, paths: Option<&[Pattern]>) {
        match paths {
            None => self.any_path.push(rule),
            Some(patterns) => {
                for pattern in patterns {
                    self.paths.insert(pattern, rule);
                }
            }
        }
    }

    fn collect(&self, path: Option<&str>, matches: &mut Matches) {
        matches.extend_from_slice(&self.any_path);
        if let Some(path) = path {
            let _ = self.paths.find(path, |rules| {
                matches.extend_from_slice(rules);
                ControlFlow::Continue(())
            });
        }
    }
}

/// The values of a signature's fields, each with its length.
type Values = Small<u8, 64>;

fn push_value(value: &str, values: &mut Values) {
    values.extend_from_slice(&(value.len() as u64).to_le_bytes());
    values.extend_from_slice(value.as_bytes());
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
            let signatures = matcher.by_field.entry(first.clone()).or_default();
            let is_same = |signature: &Signature| {
                let known = signature.others.iter();
                known.eq(others.iter().map(|(field, _)| field))
            };
            let index = signatures.iter().position(is_same).unwrap_or_else(|| {
                signatures.push(Signature {
                    others: others.iter().map(|(field, _)| field.clone()).collect(),
                    groups: HashMap::new(),
                });
                signatures.len() - 1
            });
            for values in each_combination(&wanted) {
                let groups = &mut signatures[index].groups;
                let group = groups.entry(values.to_vec().into()).or_default();
                group.insert(rule, paths);
            }
        }
        matcher.fields = matcher.by_field.keys().cloned().collect();
        matcher
    }

    /// The rules whose conditions hold, `not_path` apart.
    pub(crate) fn find(&self, context: &RequestContext<'_>) -> Matches {
        let mut matches = Matches::new();
        self.plain.collect(context.path(), &mut matches);
        let in_request = context.headers.len() + context.attributes.len();
        if self.fields.len() <= in_request + 1 {
            for field in &self.fields {
                if let Some(value) = field.value_in(context) {
                    self.find_by(field, value, context, &mut matches);
                }
            }
        } else {
            self.find_by_request(context, &mut matches);
        }
        in_order(matches)
    }

    /// Walks the request's own fields, for rule sets that know many more.
    fn find_by_request(&self, context: &RequestContext<'_>, matches: &mut Matches) {
        if let Some(method) = context.method() {
            self.find_by(&Field::Method, method, context, matches);
        }
        for (name, _) in &context.headers {
            let field = Field::Header(name.to_ascii_lowercase().into());
            // Not the value beside the name: of two headers the first counts.
            if self.by_field.contains_key(&field)
                && let Some(value) = field.value_in(context)
            {
                self.find_by(&field, value, context, matches);
            }
        }
        for (name, _) in &context.attributes {
            let field = Field::Attribute(name.as_ref().into());
            if self.by_field.contains_key(&field)
                && let Some(value) = field.value_in(context)
            {
                self.find_by(&field, value, context, matches);
            }
        }
    }

    fn find_by(
        &self,
        field: &Field,
        value: &str,
        context: &RequestContext<'_>,
        matches: &mut Matches,
    ) {
        let Some(signatures) = self.by_field.get(field) else {
            return;
        };
        for signature in signatures {
            let mut values = Values::new();
            push_value(value, &mut values);
            let complete = signature.others.iter().all(|other| {
                let value = other.value_in(context);
                value.is_some_and(|value| {
                    push_value(value, &mut values);
                    true
                })
            });
            if !complete {
                continue;
            }
            if let Some(group) = signature.groups.get(&values[..]) {
                group.collect(context.path(), matches);
            }
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

/// A rule may have matched by several of its patterns.
fn in_order(mut matches: Matches) -> Matches {
    if matches.len() < 2 {
        return matches;
    }
    matches.sort_unstable();
    let mut unique = Matches::new();
    for &rule in matches.iter() {
        if unique.last() != Some(&rule) {
            unique.push(rule);
        }
    }
    unique
}

/// Each way to choose one value for every field. Only methods have several.
fn each_combination(wanted: &[(Field, Vec<Box<str>>)]) -> Vec<Values> {
    let mut combinations = vec![Values::new()];
    for (_, choices) in wanted {
        combinations = combinations
            .iter()
            .flat_map(|chosen| {
                choices.iter().map(|choice| {
                    let mut values = chosen.clone();
                    push_value(choice, &mut values);
                    values
                })
            })
            .collect();
    }
    combinations
}
