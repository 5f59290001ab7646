//! The fields of a mapping, by name.

use super::suggestion::suggestion;
use super::{Faults, Node, Position};

/// The fields of a mapping that has no others than the known ones.
#[derive(Clone, Debug)]
pub struct Fields<'n> {
    known: &'static [&'static str],
    given: Vec<(&'n str, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// Reads a mapping. Without one, no field is given.
    pub fn read(
        node: Option<&'n Node>,
        what: &str,
        known: &'static [&'static str],
        faults: &mut Faults,
    ) -> Self {
        let mut given = Vec::new();
        let pairs = node.map(|node| node.map(what, faults)).unwrap_or_default();
        for (name, key, value) in pairs {
            if known.contains(&name) {
                given.push((name, value));
                continue;
            }
            add_unknown(name, key.position, what, known, faults);
        }
        Self { known, given }
    }

    /// Returns the value of a known field, if it is given. A null counts as absent.
    pub fn get(&self, name: &str) -> Option<&'n Node> {
        debug_assert!(self.known.contains(&name), "`{name}` is not a known field");
        let given = self.given.iter().find(|(given, _)| *given == name);
        given
            .map(|(_, value)| *value)
            .filter(|value| !value.is_null())
    }

    /// Returns the names and values of the fields that are given, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'n str, &'n Node)> {
        let given = self.given.iter().copied();
        given.filter(|(_, value)| !value.is_null())
    }
}

/// Adds the fault of a field that a mapping does not have.
pub(super) fn add_unknown(
    name: &str,
    at: Position,
    what: &str,
    known: &[&str],
    faults: &mut Faults,
) {
    let meant = suggestion(name, known).map(|known| format!("did you mean `{known}`? "));
    let (meant, known) = (meant.unwrap_or_default(), known.join(", "));
    faults.add(
        at,
        format!("unknown field `{name}` in {what}; {meant}allowed are {known}"),
    );
}
