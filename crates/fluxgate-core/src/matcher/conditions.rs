//! The conditions of a rule on a request.

use std::fmt;
use std::net::IpAddr;

use super::pattern::Pattern;
use super::pattern_set::PathSet;
use crate::context::RequestContext;
use crate::network::{IpNetwork, NetworkIndex};

/// The values of a header or an attribute that a rule matches.
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

    /// Matches every value, including an empty one.
    pub const fn present() -> Self {
        Self(Values::Present(true))
    }

    /// Matches a request without a value.
    pub const fn absent() -> Self {
        Self(Values::Present(false))
    }

    /// Returns the same with its values sorted, for [`ValueMatch::matches`].
    pub(crate) fn sorted(&self) -> Self {
        let mut sorted = self.clone();
        if let Values::OneOf(values) | Values::NoneOf(values) = &mut sorted.0 {
            values.sort_unstable();
            values.dedup();
        }
        sorted
    }

    /// Returns whether it matches the value of a request.
    pub(super) fn matches(&self, value: Option<&[u8]>) -> bool {
        let is_in = |values: &[Box<str>]| {
            let found = value.map(|value| values.binary_search_by(|it| it.as_bytes().cmp(value)));
            found.is_some_and(|found| found.is_ok())
        };
        match &self.0 {
            Values::OneOf(values) => is_in(values),
            Values::NoneOf(values) => !is_in(values),
            Values::Present(present) => value.is_some() == *present,
        }
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

/// A part of a request that has a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Field {
    Method,
    /// The name is in lower case.
    Header(Box<str>),
    Attribute(Box<str>),
}

impl Field {
    pub(crate) fn value_in<'c>(&self, context: &'c RequestContext<'_>) -> Option<&'c [u8]> {
        match self {
            Self::Method => context.method().map(str::as_bytes),
            Self::Header(name) => context.header(name).map(str::as_bytes),
            Self::Attribute(name) => context.attribute_bytes(name),
        }
    }
}

/// Writes the field of a rule that the condition is in: `methods`, `headers.x-plan`.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("methods"),
            Self::Header(name) => write!(f, "headers.{name}"),
            Self::Attribute(name) => write!(f, "attributes.{name}"),
        }
    }
}

/// The conditions of a rule. All of them must hold; `None` and an empty list always do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) paths: Option<Vec<Pattern>>,
    pub(crate) not_paths: PathSet,
    /// The values are sorted.
    pub(crate) values: Vec<(Field, ValueMatch)>,
    pub(crate) ips: Option<Vec<IpNetwork>>,
    pub(crate) not_ips: NetworkIndex,
}

impl Conditions {
    /// Returns the first part of `match` that does not hold, by its name in a rule.
    /// Decisions do not evaluate rules one by one; see [`Matcher`](super::Matcher).
    pub(crate) fn first_failed(&self, context: &RequestContext<'_>) -> Option<String> {
        let path = context.request_path();
        if let Some(patterns) = &self.paths {
            let patterns = PathSet::new(patterns.clone());
            let holds = path.is_some_and(|path| patterns.contains_either(path));
            if !holds {
                return Some("path".into());
            }
        }
        if path.is_some_and(|path| self.not_paths.contains_both(path)) {
            return Some("not_path".into());
        }
        for (field, value) in &self.values {
            if !value.matches(field.value_in(context)) {
                return Some(field.to_string());
            }
        }
        if let Some(networks) = &self.ips {
            let networks = NetworkIndex::new(networks.iter().copied());
            if !context.ip.is_some_and(|ip| networks.contains(ip)) {
                return Some("ip".into());
            }
        }
        let is_excepted = |ip: IpAddr| self.not_ips.contains(ip);
        context.ip.is_some_and(is_excepted).then(|| "not_ip".into())
    }

    /// Returns the names of the headers that it needs.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &Box<str>> {
        self.values.iter().filter_map(|(field, _)| match field {
            Field::Header(name) => Some(name),
            Field::Method | Field::Attribute(_) => None,
        })
    }
}
