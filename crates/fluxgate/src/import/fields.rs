//! Reads the mappings of foreign YAML files, in which other programs own some of the fields.

use fluxgate_core::internals::yaml::{Faults, Node, Position, Value};

/// The fields of a mapping, by their names.
#[derive(Clone, Debug)]
pub(super) struct Fields<'n> {
    pub(super) position: Position,
    /// Name, position of the name, value.
    pairs: Vec<(String, Position, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// Reads a mapping. Fields that are null count as absent.
    pub(super) fn read(node: &'n Node, what: &str, faults: &mut Faults) -> Self {
        Self::with_names(node, what, str::to_owned, faults)
    }

    /// Reads a mapping whose names are first converted to one spelling.
    pub(super) fn with_names(
        node: &'n Node,
        what: &str,
        spelling: impl Fn(&str) -> String,
        faults: &mut Faults,
    ) -> Self {
        let pairs = node.map(what, faults).into_iter();
        let pairs = pairs.filter(|(_, _, value)| !value.is_null());
        let pairs = pairs.map(|(name, key, value)| (spelling(name), key.position, value));
        Self {
            position: node.position,
            pairs: pairs.collect(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        let found = self.pairs.iter().find(|(known, _, _)| known == name);
        found.map(|(_, _, node)| *node)
    }

    /// Returns the line of a field's name.
    pub(super) fn line(&self, name: &str) -> usize {
        let found = self.pairs.iter().find(|(known, _, _)| known == name);
        found.map_or(self.position.line, |(_, position, _)| position.line)
    }

    /// Returns all names with their lines.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, usize)> {
        let pairs = self.pairs.iter();
        pairs.map(|(name, position, _)| (name.as_str(), position.line))
    }

    pub(super) fn text(&self, name: &str, faults: &mut Faults) -> Option<&'n str> {
        self.get(name)?.text(&format!("`{name}`"), faults)
    }

    pub(super) fn boolean(&self, name: &str, default: bool, faults: &mut Faults) -> bool {
        let node = self.get(name);
        let value = node.and_then(|node| node.boolean(&format!("`{name}`"), faults));
        value.unwrap_or(default)
    }

    /// Returns the items of a list, which may be empty or missing.
    pub(super) fn list(&self, name: &str, faults: &mut Faults) -> &'n [Node] {
        self.get(name)
            .map_or(&[], |node| items(node, &format!("`{name}`"), faults))
    }

    /// Returns the texts of a list, which may be empty or missing.
    pub(super) fn texts(&self, name: &str, faults: &mut Faults) -> Vec<(&'n str, usize)> {
        let items = self.list(name, faults).iter();
        let what = format!("an item of `{name}`");
        let items = items.filter_map(|item| Some((item.text(&what, faults)?, item.position.line)));
        items.collect()
    }
}

/// Returns the items of a list, which may be empty.
pub(super) fn items<'n>(node: &'n Node, what: &str, faults: &mut Faults) -> &'n [Node] {
    match &node.value {
        Value::List(items) => items,
        _ => {
            let kind = node.kind();
            faults.add(node.position, format!("{what} must be a list, not {kind}"));
            &[]
        }
    }
}

/// Reads a whole number, which may be quoted or have a fraction of zero.
pub(super) fn whole(
    node: &Node,
    what: &str,
    (least, most): (u64, u64),
    faults: &mut Faults,
) -> Option<u64> {
    let text = node.as_text().unwrap_or_default();
    let digits = text.strip_suffix(".0").unwrap_or(text);
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_whole);
    let number = number.filter(|number| (least..=most).contains(number));
    if number.is_none() {
        let given = node
            .as_text()
            .map_or(node.kind().to_owned(), |text| format!("`{text}`"));
        faults.add(
            node.position,
            format!("{what} must be a whole number from {least} to {most}, not {given}"),
        );
    }
    number
}
