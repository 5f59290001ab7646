//! Typed values of a tree.
//!
//! Each method returns the value if it is as it must be. Otherwise it adds a fault that
//! names the value by `what`.

use std::collections::HashSet;
use std::fmt::Display;
use std::str::FromStr;

use super::suggestion::suggestion;
use super::{Faults, Node, Position, Value};

impl Node {
    /// Reads a list that is not empty.
    pub fn list(&self, what: &str, faults: &mut Faults) -> &[Node] {
        match &self.value {
            Value::List(items) if !items.is_empty() => items,
            Value::List(_) => {
                faults.add(self.position, format!("{what} must not be an empty list"));
                &[]
            }
            _ => {
                let kind = self.kind();
                faults.add(self.position, format!("{what} must be a list, not {kind}"));
                &[]
            }
        }
    }

    /// Reads a mapping, as names, their nodes and values. No name may appear twice.
    pub fn map(&self, what: &str, faults: &mut Faults) -> Vec<(&str, &Node, &Node)> {
        let Value::Map(pairs) = &self.value else {
            let kind = self.kind();
            faults.add(
                self.position,
                format!("{what} must be a mapping, not {kind}"),
            );
            return Vec::new();
        };
        let mut named = Vec::with_capacity(pairs.len());
        let mut names = HashSet::new();
        for (key, value) in pairs {
            match key.as_text() {
                None => faults.add(key.position, format!("a name in {what} must be a text")),
                Some("<<") if matches!(key.value, Value::Plain(_)) => faults.add(
                    key.position,
                    "merge keys (`<<`) are not supported; write the fields out",
                ),
                Some(name) if !names.insert(name) => {
                    faults.add(key.position, format!("`{name}` appears twice in {what}"));
                }
                Some(name) => named.push((name, key, value)),
            }
        }
        named
    }

    /// Reads a mapping that has no other fields than these. A null counts as absent.
    pub fn fields<const N: usize>(
        &self,
        what: &str,
        known: [&str; N],
        faults: &mut Faults,
    ) -> [Option<&Node>; N] {
        let mut fields = [None; N];
        for (name, key, value) in self.map(what, faults) {
            match known.iter().position(|field| *field == name) {
                Some(index) if !value.is_null() => fields[index] = Some(value),
                Some(_) => {}
                None => add_unknown(name, key.position, what, &known, faults),
            }
        }
        fields
    }

    /// Reads a text.
    pub fn text(&self, what: &str, faults: &mut Faults) -> Option<&str> {
        let text = self.as_text();
        if text.is_none() {
            let kind = self.kind();
            faults.add(self.position, format!("{what} must be a text, not {kind}"));
        }
        text
    }

    /// Reads a text that is the form of a value.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(
        &self,
        what: &str,
        faults: &mut Faults,
    ) -> Option<T> {
        let parsed = self.text(what, faults)?.parse::<T>();
        let reported = parsed.map_err(|error| faults.add(self.position, error.to_string()));
        reported.ok()
    }

    /// Reads a whole number in plain decimal digits, with a sign if `least` is below
    /// zero.
    pub fn whole(&self, what: &str, least: i64, most: i64, faults: &mut Faults) -> Option<i64> {
        let number = match &self.value {
            Value::Plain(text) if is_whole(text) => text.parse::<i64>().ok(),
            _ => None,
        };
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let given = self.as_text().map_or_else(
                || self.kind().to_owned(),
                |text| match self.value {
                    Value::Quoted(_) => format!("the text {text:?}"),
                    _ => format!("`{text}`"),
                },
            );
            faults.add(
                self.position,
                format!("{what} must be a whole number from {least} to {most}, not {given}"),
            );
        }
        number
    }

    /// Reads a boolean.
    pub fn boolean(&self, what: &str, faults: &mut Faults) -> Option<bool> {
        match &self.value {
            Value::Plain(text) if matches!(text.as_str(), "true" | "True" | "TRUE") => Some(true),
            Value::Plain(text) if matches!(text.as_str(), "false" | "False" | "FALSE") => {
                Some(false)
            }
            _ => {
                faults.add(self.position, format!("{what} must be true or false"));
                None
            }
        }
    }

    /// Reads one of these names, and returns its value.
    pub fn one_of<T: Clone>(
        &self,
        what: &str,
        names: &[(&str, T)],
        faults: &mut Faults,
    ) -> Option<T> {
        let given = self.as_text();
        let found = names.iter().find(|(name, _)| given == Some(name));
        if found.is_none() {
            let known: Vec<_> = names.iter().map(|(name, _)| *name).collect();
            let known = known.join(", ");
            let given = given.map_or(self.kind().to_owned(), |text| format!("`{text}`"));
            faults.add(
                self.position,
                format!("{what} must be one of {known}; {given} is not"),
            );
        }
        found.map(|(_, value)| value.clone())
    }
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

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

    /// Reads a text, if it is given.
    pub(crate) fn text(&self, name: &str, faults: &mut Faults) -> Option<&'n str> {
        self.get(name)?.text(&format!("`{name}`"), faults)
    }

    /// Reads a boolean, or returns the default.
    pub(crate) fn boolean(&self, name: &str, default: bool, faults: &mut Faults) -> bool {
        let given = self.get(name);
        let value = given.and_then(|node| node.boolean(&format!("`{name}`"), faults));
        value.unwrap_or(default)
    }

    /// Reads the value with one of these names, if it is given.
    pub(crate) fn one_of<T: Clone>(
        &self,
        name: &str,
        values: &[(&str, T)],
        faults: &mut Faults,
    ) -> Option<T> {
        self.get(name)?.one_of(&format!("`{name}`"), values, faults)
    }

    /// Returns the names and values of the fields that are given, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'n str, &'n Node)> {
        let given = self.given.iter().copied();
        given.filter(|(_, value)| !value.is_null())
    }
}

/// Adds the fault of a field that a mapping does not have.
fn add_unknown(name: &str, at: Position, what: &str, known: &[&str], faults: &mut Faults) {
    let meant = suggestion(name, known).map(|known| format!("did you mean `{known}`? "));
    let (meant, known) = (meant.unwrap_or_default(), known.join(", "));
    faults.add(
        at,
        format!("unknown field `{name}` in {what}; {meant}allowed are {known}"),
    );
}
