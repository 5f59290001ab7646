//! Reads the mappings of foreign YAML files, in which other programs own some of the fields.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use fluxgate_core::yaml::{Fault, Faults, Node, Position, Value};

use crate::draft::Remark;

/// The fields of a mapping, by their names.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'n> {
    pub(crate) position: Position,
    fields: Vec<Field<'n>>,
}

#[derive(Clone, Debug)]
struct Field<'n> {
    /// In the spelling of the reader.
    name: String,
    /// As it is in the text.
    written: &'n str,
    line: usize,
    value: &'n Node,
}

impl<'n> Fields<'n> {
    /// Reads a mapping. Fields that are null count as absent.
    pub(crate) fn read(node: &'n Node, what: &str, faults: &mut Faults) -> Self {
        Self::with_names(node, what, str::to_owned, faults)
    }

    /// Reads a mapping whose names are first converted to one spelling.
    pub(crate) fn with_names(
        node: &'n Node,
        what: &str,
        spelling: impl Fn(&str) -> String,
        faults: &mut Faults,
    ) -> Self {
        let fields = node
            .map(what, faults)
            .into_iter()
            .filter(|(_, _, value)| !value.is_null())
            .map(|(written, key, value)| Field {
                name: spelling(written),
                written,
                line: key.position.line,
                value,
            });
        Self {
            position: node.position,
            fields: fields.collect(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'n Node> {
        self.find(name).map(|field| field.value)
    }

    /// Returns the line of a field's name.
    pub(crate) fn line(&self, name: &str) -> usize {
        self.find(name)
            .map_or(self.position.line, |field| field.line)
    }

    fn find(&self, name: &str) -> Option<&Field<'n>> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns all names with their lines.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, usize)> {
        let fields = self.fields.iter();
        fields.map(|field| (field.name.as_str(), field.line))
    }

    /// Returns a remark for each field that is neither read nor irrelevant to limits, so that
    /// none is ignored unnoticed. An empty list or mapping needs no remark.
    pub(crate) fn unread(&self, what: &str, known: &[&str]) -> Vec<Remark> {
        self.unread_names(known)
            .map(|(name, line)| Remark::lost(line, format!("`{name}` in {what}")))
            .collect()
    }

    /// Returns the fields that are not among the known ones, as they are in the text, and their
    /// lines. Leaves out empty lists and mappings.
    pub(crate) fn unread_names(&self, known: &[&str]) -> impl Iterator<Item = (&'n str, usize)> {
        let is_unread = |field: &&Field<'_>| {
            let is_known = |names: &&str| names.split(' ').any(|name| name == field.name);
            let is_empty = match &field.value.value {
                Value::List(items) => items.is_empty(),
                Value::Map(pairs) => pairs.is_empty(),
                Value::Plain(_) | Value::Quoted(_) => false,
            };
            !is_empty && !known.iter().any(is_known)
        };
        let unread = self.fields.iter().filter(is_unread);
        let unread: Vec<_> = unread.map(|field| (field.written, field.line)).collect();
        unread.into_iter()
    }

    /// Returns the text of the first of these fields that is present.
    pub(crate) fn first_text(&self, names: &[&str], faults: &mut Faults) -> Option<&'n str> {
        names.iter().find_map(|name| self.text(name, faults))
    }

    pub(crate) fn text(&self, name: &str, faults: &mut Faults) -> Option<&'n str> {
        self.get(name)?.text(&format!("`{name}`"), faults)
    }

    /// Returns the value of one of these names, or `None` if the field is absent or faulty.
    pub(crate) fn one_of<T: Copy>(
        &self,
        name: &str,
        allowed: &[(&str, T)],
        faults: &mut Faults,
    ) -> Option<T> {
        self.get(name)?
            .one_of(&format!("`{name}`"), allowed, faults)
    }

    pub(crate) fn boolean(&self, name: &str, default: bool, faults: &mut Faults) -> bool {
        let Some(node) = self.get(name) else {
            return default;
        };
        let value = node.boolean(name, &mut Faults::default());
        if value.is_none() {
            let text = format!("`{name}` must be true or false, not {}", given(node));
            faults.add(node.position, text);
        }
        value.unwrap_or(default)
    }

    /// Returns the items of a list, which may be empty or missing.
    pub(crate) fn list(&self, name: &str, faults: &mut Faults) -> &'n [Node] {
        self.get(name)
            .map_or(&[], |node| items(node, &format!("`{name}`"), faults))
    }

    /// Returns the texts of a list, which may be empty or missing.
    pub(crate) fn texts(&self, name: &str, faults: &mut Faults) -> Vec<(&'n str, usize)> {
        let what = format!("an item of `{name}`");
        let items = self.list(name, faults).iter();
        items
            .filter_map(|item| Some((item.text(&what, faults)?, item.position.line)))
            .collect()
    }
}

/// Returns the items of a list, which may be empty.
pub(crate) fn items<'n>(node: &'n Node, what: &str, faults: &mut Faults) -> &'n [Node] {
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
pub(crate) fn whole_number(
    node: &Node,
    what: &str,
    allowed: RangeInclusive<u64>,
    faults: &mut Faults,
) -> Option<u64> {
    let text = node.as_text().unwrap_or_default();
    let digits = text.strip_suffix(".0").unwrap_or(text);
    let number = parse_digits(digits).filter(|number| allowed.contains(number));
    if number.is_none() {
        let range = match allowed.into_inner() {
            (least, u64::MAX) => format!("of at least {least}"),
            (least, most) => format!("from {least} to {most}"),
        };
        let given = given(node);
        faults.add(
            node.position,
            format!("{what} must be a whole number {range}, not {given}"),
        );
    }
    number
}

/// Parses a number that consists of digits only.
pub(crate) fn parse_digits(text: &str) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

/// Returns a value for error messages.
pub(crate) fn given(node: &Node) -> String {
    let text = node.as_text().map(|text| format!("`{text}`"));
    text.unwrap_or_else(|| node.kind().to_owned())
}

/// Parses a text with one document.
pub(crate) fn document(text: &str) -> Result<Node, Fault> {
    let mut node = Node::parse(text)?;
    resolve_merge_keys(&mut node)?;
    Ok(node)
}

/// Parses a text with any number of documents.
pub(crate) fn documents(text: &str) -> Result<Vec<Node>, Fault> {
    let mut nodes = Node::parse_all(text)?;
    nodes.iter_mut().try_for_each(resolve_merge_keys)?;
    Ok(nodes)
}

/// Replaces `<<: *other` by the fields of the other mapping, or of a list of mappings. Fields
/// that the mapping itself has take precedence, then those of earlier mappings.
///
/// Aliases are copies already, whose number and depth the parser bounds. Here their fields only
/// move up, so the tree does not grow.
fn resolve_merge_keys(node: &mut Node) -> Result<(), Fault> {
    let pairs = match &mut node.value {
        Value::Plain(_) | Value::Quoted(_) => return Ok(()),
        Value::List(items) => return items.iter_mut().try_for_each(resolve_merge_keys),
        Value::Map(pairs) => pairs,
    };
    for (_, value) in pairs.iter_mut() {
        resolve_merge_keys(value)?;
    }
    if !pairs.iter().any(|(key, _)| is_merge_key(key)) {
        return Ok(());
    }
    let all = std::mem::take(pairs).into_iter();
    let (merged, own): (Vec<_>, Vec<_>) = all.partition(|(key, _)| is_merge_key(key));
    *pairs = own;
    for (_, value) in merged {
        for fields in mappings(value)? {
            let names: HashSet<_> = pairs.iter().filter_map(|(key, _)| key.as_text()).collect();
            let is_new = |key: &Node| key.as_text().is_none_or(|name| !names.contains(name));
            let new: Vec<_> = fields.into_iter().filter(|(key, _)| is_new(key)).collect();
            pairs.extend(new);
        }
    }
    Ok(())
}

fn is_merge_key(key: &Node) -> bool {
    matches!(&key.value, Value::Plain(text) if text == "<<")
}

type Pairs = Vec<(Node, Node)>;

/// Returns the fields of a mapping or of each mapping in a list.
fn mappings(node: Node) -> Result<Vec<Pairs>, Fault> {
    let position = node.position;
    let kind = node.kind();
    let nodes = match node.value {
        Value::List(items) => items,
        _ => vec![node],
    };
    let fields = nodes.into_iter().map(|node| match node.value {
        Value::Map(pairs) => Ok(pairs),
        _ => Err(Fault {
            position,
            message: format!("`<<` must be a mapping or a list of mappings, not {kind}"),
        }),
    });
    fields.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_keys_are_resolved() {
        for (text, expected) in [
            ("{<<: {a: 1, b: 2}, b: 3}", "{b: 3, a: 1}"),
            ("{<<: [{a: 1}, {a: 2, b: 2}]}", "{a: 1, b: 2}"),
            (
                "[&x {<<: {a: 1}, b: 2}, {<<: *x, c: 3}]",
                "[{a: 1, b: 2}, {a: 1, b: 2, c: 3}]",
            ),
            ("{'<<': {a: 1}}", "{'<<': {a: 1}}"),
        ] {
            let found = document(text).unwrap().canonical();
            assert_eq!(found, Node::parse(expected).unwrap().canonical(), "{text}");
        }
    }

    #[test]
    fn other_values_of_a_merge_key_are_refused() {
        for (text, expected) in [
            (
                "{<<: 7}",
                "1:6: `<<` must be a mapping or a list of mappings, not a single value",
            ),
            (
                "a:\n  <<: [{b: 1}, x]",
                "2:7: `<<` must be a mapping or a list of mappings, not a list",
            ),
        ] {
            assert_eq!(document(text).unwrap_err().to_string(), expected);
        }
    }

    /// A chain of aliases that doubles with each step.
    #[test]
    fn merged_aliases_have_a_bound() {
        let mut text = "a0: &a0 {x: 1}\n".to_owned();
        for step in 1..30 {
            let before = step - 1;
            text += &format!(
                "a{step}: &a{step} {{<<: [*a{before}, *a{before}], y{step}: *a{before}}}\n"
            );
        }
        let message = document(&text).unwrap_err().message;
        assert!(message.starts_with("too large"), "{message}");
    }

    #[test]
    fn aliases_do_not_cross_documents() {
        assert_eq!(documents("a: &x 1\n---\nb: 2\n").unwrap().len(), 2);
        assert_eq!(documents("").unwrap().len(), 0);
        assert!(documents("a: &x 1\n---\nb: *x\n").is_err());
        assert!(documents("a: &x 1\n---\n&y [*y]\n").is_err());
    }
}
