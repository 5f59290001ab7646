//! The conditions of a rule on a request.

use std::net::IpAddr;

use super::facts::RequestFacts;
use super::lists::{Field, ListNumber};
use super::pattern::Pattern;
use super::pattern_set::PathSet;
use crate::network::{IpNetwork, NetworkIndex};

/// The values of a header, an attribute, a user or an API key that a rule matches.
///
/// ```
/// use fluxgate_core::{Quota, Rule, ValueMatch};
///
/// let others = Rule::new("others")
///     .match_attribute("plan", ValueMatch::not(["free", "trial"]))
///     .match_header("x-partner", ValueMatch::absent())
///     .per_user()
///     .band(Quota::per_second(10));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueMatch(pub(crate) Values);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Values {
    OneOf(Vec<Box<str>>),
    NoneOf(Vec<Box<str>>),
    Present(bool),
    /// In the list of this name.
    In(Box<str>),
    NotIn(Box<str>),
}

impl ValueMatch {
    /// Matches each of these values.
    pub fn any_of(values: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        Self(Values::OneOf(values.into_iter().map(Into::into).collect()))
    }

    /// Matches all but these values, and a request without a value.
    pub fn not(values: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        Self(Values::NoneOf(values.into_iter().map(Into::into).collect()))
    }

    /// Matches each value of a [list](crate::RuleSetBuilder::list) of the rule set.
    pub fn in_list(name: impl Into<Box<str>>) -> Self {
        Self(Values::In(name.into()))
    }

    /// Matches all values that are not in a [list](crate::RuleSetBuilder::list) of the rule set,
    /// and a request without a value.
    pub fn not_in_list(name: impl Into<Box<str>>) -> Self {
        Self(Values::NotIn(name.into()))
    }

    /// Matches every value, including an empty one.
    pub const fn present() -> Self {
        Self(Values::Present(true))
    }

    /// Matches a request without a value.
    pub const fn absent() -> Self {
        Self(Values::Present(false))
    }
}

/// Matches one value.
impl From<&str> for ValueMatch {
    fn from(value: &str) -> Self {
        Self::any_of([value])
    }
}

/// Matches one value.
impl From<String> for ValueMatch {
    fn from(value: String) -> Self {
        Self::any_of([value])
    }
}

/// Matches one value.
impl From<Box<str>> for ValueMatch {
    fn from(value: Box<str>) -> Self {
        Self::any_of([value])
    }
}

/// Matches each of these values.
impl<T: Into<Box<str>>, const N: usize> From<[T; N]> for ValueMatch {
    fn from(values: [T; N]) -> Self {
        Self::any_of(values)
    }
}

/// Matches each of these values.
impl<T: Into<Box<str>>> From<Vec<T>> for ValueMatch {
    fn from(values: Vec<T>) -> Self {
        Self::any_of(values)
    }
}

/// A condition on the value of a field. The values are sorted, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueCondition {
    OneOf(Vec<Box<[u8]>>),
    NoneOf(Vec<Box<[u8]>>),
    Present(bool),
    In(ListNumber),
    NotIn(ListNumber),
}

impl ValueCondition {
    /// Returns whether the value of a request meets it.
    pub(super) fn holds(&self, field: &Field, facts: &RequestFacts<'_, '_>) -> bool {
        let value = facts.value_of(field);
        let is_one_of = |values: &[Box<[u8]>]| {
            let found = value.map(|value| values.binary_search_by(|it| (**it).cmp(value)));
            found.is_some_and(|found| found.is_ok())
        };
        let is_in = |list: &ListNumber| facts.lists_of(field).contains(list);
        match self {
            Self::OneOf(values) => is_one_of(values),
            Self::NoneOf(values) => !is_one_of(values),
            Self::Present(present) => value.is_some() == *present,
            Self::In(list) => is_in(list),
            Self::NotIn(list) => !is_in(list),
        }
    }

    /// Returns the list that it is about.
    fn list(&self) -> Option<ListNumber> {
        match self {
            Self::In(list) | Self::NotIn(list) => Some(*list),
            Self::OneOf(_) | Self::NoneOf(_) | Self::Present(_) => None,
        }
    }
}

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedCondition {
    /// Its field under `match`.
    pub(crate) field: String,
    /// The list that it is about.
    pub(crate) list: Option<ListNumber>,
}

impl FailedCondition {
    fn new(field: impl Into<String>, list: Option<ListNumber>) -> Self {
        let field = field.into();
        Self { field, list }
    }
}

/// The conditions of a rule. All of them must hold; `None` and an empty list always do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) paths: Option<Vec<Pattern>>,
    pub(crate) not_paths: PathSet,
    pub(crate) values: Vec<(Field, ValueCondition)>,
    pub(crate) ips: Option<Vec<IpNetwork>>,
    pub(crate) ip_list: Option<ListNumber>,
    pub(crate) not_ips: NetworkIndex,
    pub(crate) not_ip_list: Option<ListNumber>,
}

impl Conditions {
    /// Returns the first part of `match` that does not hold. Decisions do not evaluate rules
    /// one by one; see [`Matcher`](super::Matcher).
    pub(super) fn first_failed(&self, facts: &RequestFacts<'_, '_>) -> Option<FailedCondition> {
        let path = facts.context.request_path();
        let ip = facts.context.ip;
        let failed = |field: &str, list| Some(FailedCondition::new(field, list));
        if let Some(patterns) = &self.paths {
            let patterns = PathSet::new(patterns.clone());
            let holds = path.is_some_and(|path| patterns.contains_either(path));
            if !holds {
                return failed("path", None);
            }
        }
        if path.is_some_and(|path| self.not_paths.contains_both(path)) {
            return failed("not_path", None);
        }
        for (field, value) in &self.values {
            if !value.holds(field, facts) {
                return failed(&field.to_string(), value.list());
            }
        }
        if let Some(networks) = &self.ips {
            let networks = NetworkIndex::new(networks.iter().copied());
            if !ip.is_some_and(|ip| networks.contains(ip)) {
                return failed("ip", None);
            }
        }
        let is_in = |list: &ListNumber| facts.ip_lists().contains(list);
        if self.ip_list.is_some_and(|list| !is_in(&list)) {
            return failed("ip", self.ip_list);
        }
        if ip.is_some_and(|ip: IpAddr| self.not_ips.contains(ip)) {
            return failed("not_ip", None);
        }
        let excepted = self.not_ip_list.filter(is_in);
        excepted.and_then(|list| failed("not_ip", Some(list)))
    }

    /// Returns the headers that are tested, and whether their values are compared.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&Box<str>, bool)> {
        self.values
            .iter()
            .filter_map(|(field, condition)| match field {
                Field::Header(name) => {
                    Some((name, !matches!(condition, ValueCondition::Present(_))))
                }
                _ => None,
            })
    }
}
