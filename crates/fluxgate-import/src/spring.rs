//! The properties of Spring Boot's `application.yml`.
//!
//! Names may be nested or joined by dots, and written in several styles. A text may have several
//! documents, and later ones take precedence. Documents for a profile are left out unless there are
//! no others.

mod placeholders;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use fluxgate_core::yaml::{Fault, Faults, Node, Position, Value};

use crate::draft::Remark;
use crate::fields::{Fields, given, parse_digits, whole_number};

pub(crate) use placeholders::substitute;

/// The beginning of a text.
pub(crate) const START: Position = Position { line: 1, column: 1 };

/// Properties by their names, which are compared without dashes, underscores and case.
#[derive(Debug, Default)]
pub(crate) struct Properties(BTreeMap<String, Property>);

/// A property whose value is a single value or a list.
#[derive(Debug)]
pub(crate) struct Property {
    /// The name as it is written.
    pub(crate) name: String,
    pub(crate) node: Node,
    is_read: Cell<bool>,
}

impl Property {
    pub(crate) fn line(&self) -> usize {
        self.node.position.line
    }
}

impl Properties {
    /// Reads those properties of a text whose names begin with one of the prefixes.
    pub(crate) fn read(
        text: &str,
        prefixes: &[&str],
        remarks: &mut Vec<Remark>,
    ) -> Result<Self, Fault> {
        let nodes = crate::fields::documents(text)?;
        let is_properties = |node: &Node| node.as_text().is_some_and(|it| it.contains('='));
        if let Some(node) = nodes.iter().find(|node| is_properties(node)) {
            let message = "this is not YAML but a .properties file; convert it to application.yml";
            let (position, message) = (node.position, message.into());
            return Err(Fault { position, message });
        }
        let has_common = nodes.iter().any(|node| profile(node).is_none());
        let mut properties = Self::default();
        let prefixes: Vec<_> = prefixes.iter().map(|prefix| canonical(prefix)).collect();
        for node in &nodes {
            let mut own = Self::default();
            own.flatten(node, "", &|name| prefixes.iter().any(|it| is_in(name, it)));
            match profile(node) {
                Some(profile) if has_common => {
                    if !own.0.is_empty() {
                        let text = format!(
                            "the settings for the profile `{profile}`: import them as a file"
                        );
                        remarks.push(Remark::lost(node.position.line, text));
                    }
                }
                Some(profile) => {
                    let text = format!("these settings are for the profile `{profile}` only");
                    remarks.push(Remark::changed(node.position.line, text));
                    properties.0.append(&mut own.0);
                }
                None => properties.0.append(&mut own.0),
            }
        }
        for property in properties.0.values_mut() {
            substitute(&mut property.node, remarks);
        }
        Ok(properties)
    }

    /// Reads the properties of a mapping.
    pub(crate) fn of_mapping(node: &Node) -> Self {
        let mut properties = Self::default();
        properties.flatten(node, "", &|_| true);
        properties
    }

    fn flatten(&mut self, node: &Node, name: &str, is_wanted: &impl Fn(&str) -> bool) {
        match &node.value {
            Value::Map(pairs) => {
                for (key, value) in pairs {
                    let key = key.as_text().unwrap_or_default();
                    let full = if name.is_empty() {
                        key.to_owned()
                    } else {
                        format!("{name}.{key}")
                    };
                    self.flatten(value, &full, is_wanted);
                }
            }
            _ if node.is_null() => {}
            _ => {
                let short = canonical(name);
                if is_wanted(&short) {
                    let property = Property {
                        name: name.to_owned(),
                        node: node.clone(),
                        is_read: Cell::new(false),
                    };
                    self.0.insert(short, property);
                }
            }
        }
    }

    /// Returns whether there is a property of this name, or one whose name begins with it.
    pub(crate) fn has(&self, name: &str) -> bool {
        let name = canonical(name);
        self.0.keys().any(|key| is_in(key, &name))
    }

    /// Returns a property.
    pub(crate) fn get(&self, name: &str) -> Option<&Property> {
        let property = self.0.get(&canonical(name))?;
        property.is_read.set(true);
        Some(property)
    }

    /// Returns the line of a property, or of the first whose name begins with this one.
    pub(crate) fn line(&self, name: &str) -> usize {
        let name = canonical(name);
        let mut found = self.0.iter().filter(|(key, _)| is_in(key, &name));
        found.next().map_or(1, |(_, property)| property.line())
    }

    pub(crate) fn text(&self, name: &str, faults: &mut Faults) -> Option<&str> {
        self.get(name)?.node.text(&format!("`{name}`"), faults)
    }

    pub(crate) fn boolean(&self, name: &str, faults: &mut Faults) -> Option<bool> {
        let node = &self.get(name)?.node;
        let value = node.as_text().map(str::to_ascii_lowercase);
        match value.as_deref() {
            Some("true" | "on" | "yes" | "1") => Some(true),
            Some("false" | "off" | "no" | "0") => Some(false),
            _ => {
                let text = format!("`{name}` must be true or false, not {}", given(node));
                faults.add(node.position, text);
                None
            }
        }
    }

    /// Returns the value of one of these names, which may be in any case.
    pub(crate) fn one_of<T: Copy>(
        &self,
        name: &str,
        allowed: &[(&str, T)],
        faults: &mut Faults,
    ) -> Option<T> {
        let node = &self.get(name)?.node;
        let given = node.as_text().unwrap_or_default();
        let found = allowed
            .iter()
            .find(|(it, _)| it.eq_ignore_ascii_case(given));
        match found {
            Some((_, value)) => Some(*value),
            None => node.one_of(&format!("`{name}`"), allowed, faults),
        }
    }

    pub(crate) fn number(&self, name: &str, least: u64, faults: &mut Faults) -> Option<u64> {
        let node = &self.get(name)?.node;
        whole_number(node, &format!("`{name}`"), least..=u64::MAX, faults)
    }

    /// Returns a duration: `500ms`, `30s`, `PT30S`, or a number of milliseconds.
    pub(crate) fn duration(&self, name: &str, faults: &mut Faults) -> Option<Duration> {
        let node = &self.get(name)?.node;
        let found = node.as_text().and_then(parse_duration);
        if found.is_none() {
            let text = format!(
                "`{name}` must be a duration such as 500ms, 30s or PT30S, not {}",
                given(node)
            );
            faults.add(node.position, text);
        }
        found
    }

    /// Returns the texts of a list, or of a text in which commas separate them.
    pub(crate) fn texts(&self, name: &str, faults: &mut Faults) -> Vec<(String, usize)> {
        let Some(property) = self.get(name) else {
            return Vec::new();
        };
        match &property.node.value {
            Value::List(items) => {
                let what = format!("an item of `{name}`");
                let text = |item: &Node| {
                    let text = item.text(&what, faults)?;
                    Some((text.trim().to_owned(), item.position.line))
                };
                items.iter().filter_map(text).collect()
            }
            _ => {
                let text = property.node.as_text().unwrap_or_default();
                let line = property.line();
                words(text).map(|word| (word.to_owned(), line)).collect()
            }
        }
    }

    /// Returns the items of a list.
    pub(crate) fn list(&self, name: &str, faults: &mut Faults) -> &[Node] {
        let property = self.get(name);
        property.map_or(&[], |it| {
            crate::fields::items(&it.node, &format!("`{name}`"), faults)
        })
    }

    /// Returns all properties whose names begin with this one, with the rest of their names.
    pub(crate) fn below(&self, name: &str) -> Vec<(String, &Property)> {
        let name = canonical(name);
        let below = self.0.iter().filter_map(|(key, property)| {
            let rest = key.strip_prefix(name.as_str())?.strip_prefix('.')?;
            property.is_read.set(true);
            Some((rest.to_owned(), property))
        });
        below.collect()
    }

    /// Returns a remark for each property with this prefix that has not been read.
    pub(crate) fn unread(&self, prefix: &str) -> Vec<Remark> {
        let prefix = canonical(prefix);
        let unread = self.0.iter().filter(|(key, property)| {
            let is_empty = matches!(&property.node.value, Value::List(items) if items.is_empty());
            is_in(key, &prefix) && !property.is_read.get() && !is_empty
        });
        let remark = |(_, it): (_, &Property)| Remark::lost(it.line(), format!("`{}`", it.name));
        unread.map(remark).collect()
    }
}

/// Returns whether a name is the prefix or continues it.
fn is_in(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || prefix.is_empty())
}

/// Returns a name in the one spelling by which names are compared.
pub(crate) fn canonical(name: &str) -> String {
    let letters = name.chars().filter(|char| !matches!(char, '-' | '_'));
    letters.collect::<String>().to_ascii_lowercase()
}

/// Returns the texts that commas separate.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|it| !it.is_empty())
}

fn parse_duration(text: &str) -> Option<Duration> {
    if let Some(iso) = text.strip_prefix("PT").or_else(|| text.strip_prefix("pt")) {
        return parse_duration(&iso.to_ascii_lowercase());
    }
    let (digits, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let millis = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let millis = parse_digits(digits)?.checked_mul(millis)?;
    Some(Duration::from_millis(millis))
}

/// Reads a mapping whose names may be written in any of the styles that Spring accepts.
pub(crate) fn fields<'n>(node: &'n Node, what: &str, faults: &mut Faults) -> Fields<'n> {
    Fields::with_names(node, what, canonical, faults)
}

/// Returns the profiles for which a document applies, as they are written.
pub(crate) fn profile(node: &Node) -> Option<String> {
    let paths = ["spring.config.activate.on-profile", "spring.profiles"];
    let profile = |path| property(node, path).and_then(texts);
    paths.into_iter().find_map(profile)
}

/// Returns a property. Each name in the text may be several of the path's, joined by dots.
fn property<'n>(node: &'n Node, path: &str) -> Option<&'n Node> {
    let Value::Map(pairs) = &node.value else {
        return None;
    };
    pairs.iter().find_map(|(key, value)| {
        let rest = path.strip_prefix(key.as_text()?)?;
        match rest.strip_prefix('.') {
            Some(rest) => property(value, rest),
            None => rest.is_empty().then_some(value),
        }
    })
}

/// Returns a text or the texts of a list.
fn texts(node: &Node) -> Option<String> {
    match &node.value {
        Value::List(items) => {
            let items: Vec<_> = items.iter().filter_map(Node::as_text).collect();
            Some(items.join(", "))
        }
        _ => node.as_text().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_may_belong_to_a_profile() {
        for (text, expected) in [
            (
                "spring: {config: {activate: {on-profile: prod}}}",
                Some("prod"),
            ),
            ("spring: {config.activate.on-profile: [a, b]}", Some("a, b")),
            (
                "spring.config.activate.on-profile: prod | live",
                Some("prod | live"),
            ),
            ("spring: {profiles: dev}", Some("dev")),
            ("spring: {profiles: {active: dev}}", None),
            ("springs: {profiles: dev}", None),
        ] {
            assert_eq!(profile(&Node::parse(text).unwrap()).as_deref(), expected);
        }
    }

    #[test]
    fn names_may_be_nested_dotted_and_in_any_style() {
        let text = "a: {maxWait: 1}\na.other_name: 2\n---\na.MAX-WAIT: 3\nb: 4\n---\nspring.profiles: x\na: {c: 5}\n";
        let mut remarks = Vec::new();
        let read = Properties::read(text, &["a"], &mut remarks).unwrap();
        let mut faults = Faults::default();
        assert_eq!(read.text("a.max-wait", &mut faults), Some("3"));
        assert_eq!(read.text("a.otherName", &mut faults), Some("2"));
        assert_eq!(read.text("b", &mut faults), None);
        assert_eq!(read.text("a.c", &mut faults), None);
        assert!(read.has("a") && read.has("a.max-wait") && !read.has("a.max"));
        assert_eq!(read.unread("a"), []);
        let expected = "not carried over: the settings for the profile `x`: import them as a file";
        assert_eq!(remarks[0].sentence(), expected);
        assert_eq!((remarks[0].line, remarks.len()), (7, 1));
    }

    #[test]
    fn durations_have_units() {
        for (text, millis) in [
            ("250", Some(250)),
            ("500ms", Some(500)),
            ("30s", Some(30_000)),
            ("PT2M", Some(120_000)),
            ("1d", Some(86_400_000)),
            ("", None),
            ("s", None),
            ("1.5s", None),
            ("99999999999999999999s", None),
        ] {
            let expected = millis.map(Duration::from_millis);
            assert_eq!(parse_duration(text), expected, "{text}");
        }
    }
}
