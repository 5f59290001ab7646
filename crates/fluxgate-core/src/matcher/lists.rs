//! The parts of a request that have a value, and the lists that they are compared with.

use std::fmt;
use std::net::IpAddr;

use foldhash::HashMap;
use smallvec::SmallVec;

use crate::network::{IpNetwork, PrefixMap};

/// Some lists of a rule set, each once.
pub(super) type ListNumbers = SmallVec<[ListNumber; 4]>;

/// All lists that conditions use. One look-up finds every list that contains a value, however
/// many lists there are and however long they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListIndex {
    /// The lists that contain each value, by the field that is compared with them.
    values: HashMap<Field, HashMap<Box<[u8]>, ListNumbers>>,
    /// The lists that contain each network.
    networks: PrefixMap<ListNumbers>,
}

impl ListIndex {
    /// Adds a list that the values of a field are compared with.
    pub(crate) fn add_values(
        &mut self,
        field: &Field,
        list: ListNumber,
        values: impl Iterator<Item = Box<[u8]>>,
    ) {
        let of_field = self.values.entry(field.clone()).or_default();
        for value in values {
            add(of_field.entry(value).or_default(), list);
        }
    }

    /// Adds a list that the addresses of clients are compared with.
    pub(crate) fn add_networks(
        &mut self,
        list: ListNumber,
        networks: impl Iterator<Item = IpNetwork>,
    ) {
        for network in networks {
            add(self.networks.get_or_default(&network), list);
        }
    }

    /// Returns the lists that contain this value of a field.
    pub(super) fn containing(&self, field: &Field, value: &[u8]) -> &[ListNumber] {
        let of_field = self.values.get(field);
        let lists = of_field.and_then(|of_field| of_field.get(value));
        lists.map_or(&[], |lists| lists)
    }

    /// Returns the lists with a network that contains an address.
    pub(super) fn containing_ip(&self, ip: IpAddr) -> ListNumbers {
        let mut found = ListNumbers::new();
        self.networks.for_each_containing(ip, |lists| {
            lists.iter().for_each(|list| add(&mut found, *list));
        });
        found
    }
}

/// Adds a list, unless it is there. Lists are added one after the other, so only a value that is
/// in many lists takes a long search.
fn add(lists: &mut ListNumbers, list: ListNumber) {
    if lists.last() != Some(&list) && !lists.contains(&list) {
        lists.push(list);
    }
}

/// A part of a request that has a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Field {
    Method,
    /// The name is in lower case.
    Header(Box<str>),
    Attribute(Box<str>),
    User,
    ApiKey,
    /// The SHA-256 of the API key.
    ApiKeyHash,
}

/// Writes the field of a rule that the condition is in: `methods`, `headers.x-plan`.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("methods"),
            Self::Header(name) => write!(f, "headers.{name}"),
            Self::Attribute(name) => write!(f, "attributes.{name}"),
            Self::User => f.write_str("user"),
            Self::ApiKey | Self::ApiKeyHash => f.write_str("api_key"),
        }
    }
}

/// The number of a list in its rule set.
pub(crate) type ListNumber = u32;
