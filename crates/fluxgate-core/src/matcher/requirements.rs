//! What a rule requires of a request, besides its path.

use foldhash::HashMap;
use smallvec::SmallVec;

use super::conditions::{Conditions, Field, ValueMatch, Values};
use crate::context::RequestContext;
use crate::network::NetworkIndex;

/// The most groups that one rule is in, if it has several lists of values. More values are
/// tested.
const MOST_CHOICES: usize = 32;

/// The networks around the client's address, by their numbers.
pub(super) type Networks = SmallVec<[[u8; 4]; 8]>;

/// A part of a request, by whose value rules are found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// The value of a field.
    Value(Field),
    /// A field, with any value.
    Present(Field),
    /// The networks around the client's address.
    Networks,
}

impl Part {
    /// Returns whether requests name it: a header or an attribute.
    pub(super) fn is_named(&self) -> bool {
        match self {
            Self::Value(field) | Self::Present(field) => *field != Field::Method,
            Self::Networks => false,
        }
    }

    /// Returns its value in a request; `None` if it has none. Networks may be several.
    pub(super) fn value_in<'c>(&self, context: &'c RequestContext<'_>) -> Option<&'c [u8]> {
        match self {
            Self::Value(field) => field.value_in(context),
            Self::Present(field) => field.value_in(context).map(|_| &b""[..]),
            Self::Networks => None,
        }
    }

    /// Calls `found` with each of its values in a request.
    pub(super) fn for_each_value(
        &self,
        context: &RequestContext<'_>,
        networks: &Networks,
        mut found: impl FnMut(&[u8]),
    ) {
        match self {
            Self::Networks => networks.iter().for_each(|network| found(network)),
            _ => {
                if let Some(value) = self.value_in(context) {
                    found(value);
                }
            }
        }
    }
}

/// A condition that most requests meet, so that rules cannot be found by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Value(Field, ValueMatch),
    In(NetworkIndex),
    NotIn(NetworkIndex),
}

impl Test {
    pub(super) fn passes(&self, context: &RequestContext<'_>) -> bool {
        match self {
            Self::Value(field, value) => value.matches(field.value_in(context)),
            Self::In(networks) => context.ip.is_some_and(|ip| networks.contains(ip)),
            Self::NotIn(networks) => !context.ip.is_some_and(|ip| networks.contains(ip)),
        }
    }
}

/// What a rule requires.
#[derive(Debug)]
pub(super) struct Requirements {
    /// Parts, each with the values that match.
    parts: Vec<(Part, Vec<Box<[u8]>>)>,
    pub(super) tests: Vec<Test>,
}

impl Requirements {
    pub(super) fn of(conditions: &Conditions, networks: &NetworkIndex) -> Self {
        let (mut parts, mut tests) = (Vec::new(), Vec::new());
        for (field, value) in &conditions.values {
            match &value.0 {
                Values::OneOf(values) => {
                    let values = values.iter().map(|value| value.as_bytes().into());
                    parts.push((Part::Value(field.clone()), values.collect()));
                }
                Values::Present(true) => {
                    parts.push((Part::Present(field.clone()), vec![Box::default()]));
                }
                Values::Present(false) | Values::NoneOf(_) => {
                    tests.push(Test::Value(field.clone(), value.clone()));
                }
            }
        }
        if let Some(of_rule) = &conditions.ips {
            let numbers = of_rule.iter().filter_map(|it| networks.number_of(it));
            let values = numbers.map(|number| number.to_le_bytes().into());
            parts.push((Part::Networks, values.collect()));
        }
        if !conditions.not_ips.is_empty() {
            tests.push(Test::NotIn(conditions.not_ips.clone()));
        }
        let mut required = Self { parts, tests };
        required.test_long_lists(conditions);
        required
    }

    /// Turns lists of values into tests, the longest first, until one is left or there are
    /// few choices of one value from each.
    fn test_long_lists(&mut self, conditions: &Conditions) {
        loop {
            let lengths = self.parts.iter().map(|(_, values)| values.len());
            let choices = lengths.clone().fold(1, usize::saturating_mul);
            let lists = lengths.filter(|length| *length > 1).count();
            if lists <= 1 || choices <= MOST_CHOICES {
                return;
            }
            let parts = self.parts.iter().enumerate();
            let longest = parts.max_by_key(|(_, (_, values))| values.len());
            let Some((longest, _)) = longest else { return };
            let test = match self.parts.swap_remove(longest).0 {
                Part::Value(field) | Part::Present(field) => {
                    let mut values = conditions.values.iter();
                    let value = values.find(|(known, _)| *known == field);
                    value.map(|(field, value)| Test::Value(field.clone(), value.clone()))
                }
                Part::Networks => {
                    let networks = conditions.ips.iter().flatten().copied();
                    Some(Test::In(NetworkIndex::new(networks)))
                }
            };
            self.tests.extend(test);
        }
    }

    /// Returns the parts; a rule without any is not found by values.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().map(|(part, _)| part)
    }

    /// Sorts the parts, the rarest first: the rule is found by that one.
    pub(super) fn sort_by_uses(&mut self, uses: &HashMap<Part, usize>) {
        self.parts
            .sort_by(|(a, _), (b, _)| (uses[a], a).cmp(&(uses[b], b)));
    }

    /// Returns each way to choose one value for every part, in their order.
    pub(super) fn choices(&self) -> Vec<Vec<&[u8]>> {
        let mut choices: Vec<Vec<&[u8]>> = vec![Vec::new()];
        for (_, values) in &self.parts {
            let longer = |chosen: &Vec<_>| {
                let values = values.iter().map(|value| &**value);
                values
                    .map(|value| [&chosen[..], &[value]].concat())
                    .collect::<Vec<_>>()
            };
            choices = choices.iter().flat_map(longer).collect();
        }
        choices
    }
}
