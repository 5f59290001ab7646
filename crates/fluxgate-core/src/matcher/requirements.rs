//! What a rule requires of a request, besides its path.

use foldhash::HashMap;
use smallvec::SmallVec;

use super::conditions::{Conditions, ValueCondition};
use super::facts::RequestFacts;
use super::lists::{Field, ListNumber};
use crate::network::NetworkIndex;

/// The most groups that one rule is in, if it has several lists of values. More values are
/// tested.
const MOST_CHOICES: usize = 32;

/// The most parts of one rule that may have several values in a request: every combination of
/// them is looked up. More are tested.
const MAX_MULTI_VALUED: usize = 3;

/// The networks around the client's address, by their numbers.
pub(super) type Networks = SmallVec<[[u8; 4]; 8]>;

/// A part of a request, by whose value rules are found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// The value of a field.
    Value(Field),
    /// A field, with any value.
    Present(Field),
    /// The lists that contain the value of a field.
    Lists(Field),
    /// The networks around the client's address.
    Networks,
    /// The lists that contain the client's address.
    IpLists,
}

impl Part {
    /// Returns whether requests name it: a header or an attribute.
    pub(super) fn is_named(&self) -> bool {
        match self {
            Self::Value(field) | Self::Present(field) | Self::Lists(field) => {
                matches!(field, Field::Header(_) | Field::Attribute(_))
            }
            Self::Networks | Self::IpLists => false,
        }
    }

    /// Returns whether it may have several values in a request.
    pub(super) fn is_multiple(&self) -> bool {
        matches!(self, Self::Lists(_) | Self::Networks | Self::IpLists)
    }

    /// Returns its value in a request, if it has one and cannot have several.
    pub(super) fn value_in<'f>(&self, facts: &'f RequestFacts<'_, '_>) -> Option<&'f [u8]> {
        match self {
            Self::Value(field) => facts.value_of(field),
            Self::Present(field) => facts.value_of(field).map(|_| &b""[..]),
            Self::Lists(_) | Self::Networks | Self::IpLists => None,
        }
    }

    /// Calls `found` with each of its values in a request.
    pub(super) fn for_each_value(
        &self,
        facts: &RequestFacts<'_, '_>,
        networks: &Networks,
        mut found: impl FnMut(&[u8]),
    ) {
        let mut found_lists =
            |lists: &[ListNumber]| lists.iter().for_each(|list| found(&list.to_le_bytes()));
        match self {
            Self::Lists(field) => found_lists(facts.lists_of(field)),
            Self::IpLists => found_lists(facts.ip_lists()),
            Self::Networks => networks.iter().for_each(|network| found(network)),
            Self::Value(_) | Self::Present(_) => {
                if let Some(value) = self.value_in(facts) {
                    found(value);
                }
            }
        }
    }
}

/// A condition that most requests meet, so that rules cannot be found by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Value(Field, ValueCondition),
    In(NetworkIndex),
    NotIn(NetworkIndex),
    InIpList(ListNumber),
    NotInIpList(ListNumber),
}

impl Test {
    pub(super) fn passes(&self, facts: &RequestFacts<'_, '_>) -> bool {
        let ip = facts.context.ip;
        match self {
            Self::Value(field, condition) => condition.holds(field, facts),
            Self::In(networks) => ip.is_some_and(|ip| networks.contains(ip)),
            Self::NotIn(networks) => !ip.is_some_and(|ip| networks.contains(ip)),
            Self::InIpList(list) => facts.ip_lists().contains(list),
            Self::NotInIpList(list) => !facts.ip_lists().contains(list),
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
        for (field, condition) in &conditions.values {
            match condition {
                ValueCondition::OneOf(values) => {
                    parts.push((Part::Value(field.clone()), values.clone()));
                }
                ValueCondition::Present(true) => {
                    parts.push((Part::Present(field.clone()), vec![Box::default()]));
                }
                ValueCondition::In(list) => {
                    parts.push((Part::Lists(field.clone()), vec![number_value(*list)]));
                }
                ValueCondition::Present(false)
                | ValueCondition::NoneOf(_)
                | ValueCondition::NotIn(_) => {
                    tests.push(Test::Value(field.clone(), condition.clone()));
                }
            }
        }
        if let Some(of_rule) = &conditions.ips {
            let numbers = of_rule.iter().filter_map(|it| networks.number_of(it));
            let values = numbers.map(number_value);
            parts.push((Part::Networks, values.collect()));
        }
        if let Some(list) = conditions.ip_list {
            parts.push((Part::IpLists, vec![number_value(list)]));
        }
        if !conditions.not_ips.is_empty() {
            tests.push(Test::NotIn(conditions.not_ips.clone()));
        }
        tests.extend(conditions.not_ip_list.map(Test::NotInIpList));
        let mut required = Self { parts, tests };
        required.test_long_lists(conditions);
        required.test_multiple(conditions);
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
            self.test(longest, conditions);
        }
    }

    /// Turns parts that may have several values into tests, until few are left.
    fn test_multiple(&mut self, conditions: &Conditions) {
        loop {
            let multiple = self
                .parts
                .iter()
                .enumerate()
                .filter(|(_, (part, _))| part.is_multiple());
            let Some((next, _)) = multiple.skip(MAX_MULTI_VALUED).last() else {
                return;
            };
            self.test(next, conditions);
        }
    }

    /// Turns a part into a test.
    fn test(&mut self, index: usize, conditions: &Conditions) {
        let test = match self.parts.swap_remove(index).0 {
            Part::Value(field) | Part::Present(field) | Part::Lists(field) => {
                let mut values = conditions.values.iter();
                let value = values.find(|(known, _)| *known == field);
                value.map(|(field, value)| Test::Value(field.clone(), value.clone()))
            }
            Part::Networks => {
                let networks = conditions.ips.iter().flatten().copied();
                Some(Test::In(NetworkIndex::new(networks)))
            }
            Part::IpLists => conditions.ip_list.map(Test::InIpList),
        };
        self.tests.extend(test);
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

/// Returns the number of a network or a list as the value of a part.
fn number_value(number: u32) -> Box<[u8]> {
    Box::new(number.to_le_bytes())
}
