//! Reads the mappings of foreign YAML files, in which other programs own some of the fields.

use fluxgate_core::internals::yaml::{Faults, Node, Position, Value};

use super::draft::Remark;

/// The fields of a mapping, by their names.
#[derive(Clone, Debug)]
pub(super) struct Fields<'n> {
    pub(super) position: Position,
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
        let fields = pairs.map(|(written, key, value)| Field {
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

    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        self.find(name).map(|field| field.value)
    }

    /// Returns the line of a field's name.
    pub(super) fn line(&self, name: &str) -> usize {
        self.find(name)
            .map_or(self.position.line, |field| field.line)
    }

    fn find(&self, name: &str) -> Option<&Field<'n>> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns all names with their lines.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, usize)> {
        let fields = self.fields.iter();
        fields.map(|field| (field.name.as_str(), field.line))
    }

    /// Returns a remark for each field that is neither read nor irrelevant to limits, so that
    /// none is ignored unnoticed. An empty list or mapping says nothing.
    pub(super) fn unread(&self, what: &str, read: &[&str], irrelevant: &[&str]) -> Vec<Remark> {
        let is_known = |field: &&Field<'_>| {
            let name = field.name.as_str();
            read.contains(&name) || irrelevant.contains(&name)
        };
        let is_empty = |field: &&Field<'_>| match &field.value.value {
            Value::List(items) => items.is_empty(),
            Value::Map(pairs) => pairs.is_empty(),
            Value::Plain(_) | Value::Quoted(_) => false,
        };
        let unread = self.fields.iter();
        let unread = unread.filter(|field| !is_known(field) && !is_empty(field));
        let remark = |field: &Field<'_>| {
            let text = format!("`{}` in {what}", field.written);
            Remark::lost(field.line, text)
        };
        unread.map(remark).collect()
    }

    pub(super) fn text(&self, name: &str, faults: &mut Faults) -> Option<&'n str> {
        self.get(name)?.text(&format!("`{name}`"), faults)
    }

    pub(super) fn boolean(&self, name: &str, default: bool, faults: &mut Faults) -> bool {
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
        let range = match most {
            u64::MAX => format!("of at least {least}"),
            _ => format!("from {least} to {most}"),
        };
        let given = given(node);
        faults.add(
            node.position,
            format!("{what} must be a whole number {range}, not {given}"),
        );
    }
    number
}

/// Returns a value for error messages.
fn given(node: &Node) -> String {
    let text = node.as_text().map(|text| format!("`{text}`"));
    text.unwrap_or_else(|| node.kind().to_owned())
}
