//! Checks the lists of a rule set, and indexes those that its rules use.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

use crate::matcher::{Field, ListIndex, ListNumber};
use crate::network::IpNetwork;
use crate::rules::fault::{FaultCollector, RuleFault, Step};
use crate::rules::lists::{List, MAX_VALUES};
use crate::rules::names::{MAX_NAME, is_set_name};
use crate::text::parse_sha256;

/// Checks the names and the sizes of lists.
pub(super) fn check(lists: &[List], faults: &mut FaultCollector<'_>) {
    let mut names = HashSet::new();
    for List { name, values } in lists {
        faults.enter([Step::Field("lists"), Step::Name(name.clone())]);
        if !is_set_name(name) {
            faults.add(format!(
                "a list's name must have 1 to {MAX_NAME} bytes and no control character"
            ));
        } else if !names.insert(name) {
            faults.add(format!("there is a list `{name}` already"));
        }
        if values.is_empty() {
            faults.add(format!("list `{name}` must not be empty"));
        } else if values.len() > MAX_VALUES {
            faults.add(format!(
                "list `{name}` has {} values; a list may have {MAX_VALUES}",
                values.len()
            ));
        }
        faults.leave(2);
    }
}

/// The lists of a rule set, and how its rules use them.
pub(super) struct ListUses<'a> {
    lists: &'a [List],
    pub(super) index: ListIndex,
    /// The fields that each list is indexed for; `None` is the client's address.
    indexed: HashSet<(ListNumber, Option<Field>)>,
    /// Faults of values, which belong to the lists and not to the rule that uses them.
    pub(super) faults: Vec<RuleFault>,
}

impl<'a> ListUses<'a> {
    pub(super) fn new(lists: &'a [List]) -> Self {
        Self {
            lists,
            index: ListIndex::default(),
            indexed: HashSet::new(),
            faults: Vec::new(),
        }
    }

    /// Returns the number of a list that the value of a field is compared with, and the field:
    /// an API key is compared by its hash if the list names any by its hash. Adds a fault if
    /// there is no such list.
    pub(super) fn of_field(
        &mut self,
        field: Field,
        name: &str,
        faults: &mut FaultCollector<'_>,
    ) -> Option<(Field, ListNumber)> {
        let (number, values) = self.find(name, faults)?;
        let mut field = field;
        if field == Field::ApiKey && has_hashes(values) {
            field = Field::ApiKeyHash;
        }
        if self.indexed.insert((number, Some(field.clone()))) {
            let mut parsed = Vec::with_capacity(values.len());
            for (index, value) in values.iter().enumerate() {
                match stored_value(&field, value) {
                    Ok(value) => parsed.push(value),
                    Err(message) => self.add_fault(faults, name, index, message),
                }
            }
            self.index.add_values(&field, number, parsed.into_iter());
        }
        Some((field, number))
    }

    /// Returns the number of a list that addresses are compared with. Adds a fault if there is
    /// no such list, and for each value that is no network.
    pub(super) fn of_ip(
        &mut self,
        name: &str,
        faults: &mut FaultCollector<'_>,
    ) -> Option<ListNumber> {
        let (number, values) = self.find(name, faults)?;
        if self.indexed.insert((number, None)) {
            let mut parsed = Vec::with_capacity(values.len());
            for (index, value) in values.iter().enumerate() {
                match value.parse::<IpNetwork>() {
                    Ok(network) => parsed.push(network),
                    Err(error) => {
                        let message = format!("{error}; `ip` uses this list");
                        self.add_fault(faults, name, index, message);
                    }
                }
            }
            self.index.add_networks(number, parsed.into_iter());
        }
        Some(number)
    }

    fn find(
        &self,
        name: &str,
        faults: &mut FaultCollector<'_>,
    ) -> Option<(ListNumber, &'a [Box<str>])> {
        let mut lists = self.lists.iter();
        let found = lists.position(|list| *list.name == *name);
        if found.is_none() {
            let known: Vec<_> = self.lists.iter().map(|list| &*list.name).collect();
            faults.add(match &known[..] {
                [] => format!("there is no list `{name}`: the rule set has no `lists`"),
                known => format!("there is no list `{name}`; there are {}", known.join(", ")),
            });
        }
        found.map(|index| (index as ListNumber, &*self.lists[index].values))
    }

    fn add_fault(
        &mut self,
        faults: &FaultCollector<'_>,
        list: &str,
        index: usize,
        message: String,
    ) {
        let path = vec![
            Step::Field("lists"),
            Step::Name(list.into()),
            Step::Index(index),
        ];
        self.faults.push(faults.fault_at(path, message));
    }
}

/// Returns a value as the value of a field is compared with it, or why it is not one.
pub(super) fn stored_value(field: &Field, value: &str) -> Result<Box<[u8]>, String> {
    if *field != Field::ApiKeyHash {
        return Ok(value.as_bytes().into());
    }
    match value.strip_prefix(HASHED) {
        Some(digits) => match parse_sha256(digits) {
            Some(hash) => Ok(Box::new(hash)),
            None => Err(format!(
                "an API key by its hash is `{HASHED}` and 64 hexadecimal digits; `{value}` is not"
            )),
        },
        None => Ok(Sha256::digest(value.as_bytes()).as_slice().into()),
    }
}

/// Returns whether any API key is written as its hash.
pub(super) fn has_hashes(values: &[Box<str>]) -> bool {
    values.iter().any(|value| value.starts_with(HASHED))
}

/// The start of an API key that is written as its hash.
const HASHED: &str = "sha256:";
