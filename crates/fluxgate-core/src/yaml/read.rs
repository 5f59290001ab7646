//! Typed values of a tree.
//!
//! Each method returns the value if it is as it must be. Otherwise it adds a fault that
//! names the value by `what`.

use std::collections::HashSet;

use super::fields::add_unknown;
use super::{Faults, Node, Value};

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
    pub fn one_of<T: Copy>(
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
        found.map(|(_, value)| *value)
    }
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
