//! The documents of an `application.yml`. Each may belong to a profile.

use fluxgate_core::yaml::{Faults, Node, Value};

use crate::draft::Remark;

/// A document with settings of Bucket4j.
#[derive(Debug)]
pub(super) struct Document {
    /// Its first line.
    pub(super) line: usize,
    /// The profiles for which it applies, as they are written.
    pub(super) profile: Option<String>,
    pub(super) settings: Node,
}

impl Document {
    /// Returns the settings of a document, if it has any.
    pub(super) fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let Value::Map(_) = &node.value else {
            return None;
        };
        let fields = node.map("a configuration", faults);
        let (_, _, settings) = fields.into_iter().find(|(name, ..)| *name == "bucket4j")?;
        let paths = ["spring.config.activate.on-profile", "spring.profiles"];
        let profile = |path| property(node, path).and_then(texts);
        Some(Self {
            line: node.position.line,
            profile: paths.into_iter().find_map(profile),
            settings: settings.clone(),
        })
    }
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

/// The deepest nesting of placeholders.
const MAX_DEPTH: usize = 16;

/// Replaces each placeholder in the scalars of a tree by its default, with a remark. One without
/// a default stays.
pub(super) fn substitute(node: &mut Node, remarks: &mut Vec<Remark>) {
    let line = node.position.line;
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| substitute(item, remarks)),
        Value::Map(pairs) => {
            let values = pairs.iter_mut().map(|(_, value)| value);
            values.for_each(|value| substitute(value, remarks));
        }
        Value::Plain(text) | Value::Quoted(text) => {
            if let Some(text) = substituted(text, line, 0, remarks) {
                // The default of `"${NAME:5}"` may be a number.
                node.value = Value::Plain(text);
            }
        }
    }
}

/// Returns a text with its placeholders replaced, or `None` if it has none.
fn substituted(text: &str, line: usize, depth: usize, remarks: &mut Vec<Remark>) -> Option<String> {
    let (mut begin, mut rest) = text.split_once("${")?;
    let mut result = String::new();
    loop {
        result.push_str(begin);
        let Some((inside, after)) = closed(rest).filter(|_| depth < MAX_DEPTH) else {
            result.push_str("${");
            result.push_str(rest);
            return Some(result);
        };
        let remark = match inside.split_once(':') {
            Some((name, default)) => {
                let nested = substituted(default, line, depth + 1, remarks);
                let default = nested.as_deref().unwrap_or(default);
                result.push_str(default);
                Remark::changed(line, format!("`${{{name}}}` is its default, {default}"))
            }
            None => {
                let whole = format!("${{{inside}}}");
                result.push_str(&whole);
                let text = format!("`{whole}` has no default: write its value in its place");
                Remark::lost(line, text)
            }
        };
        remarks.push(remark);
        match after.split_once("${") {
            Some(next) => (begin, rest) = next,
            None => {
                result.push_str(after);
                return Some(result);
            }
        }
    }
}

/// Returns the text up to the brace that closes a placeholder, and what follows it.
fn closed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (index, char) in text.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 0 => return Some((&text[..index], &text[index + 1..])),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Document> {
        Document::read(&Node::parse(text).unwrap(), &mut Faults::default())
    }

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
            let text = format!("{text}\nbucket4j: {{}}\n");
            let document = read(&text).unwrap();
            assert_eq!(document.profile.as_deref(), expected, "{text}");
        }
        for text in ["", "[]", "spring: {}"] {
            assert!(read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn placeholders_become_their_defaults() {
        for (text, expected) in [
            ("5", "5"),
            ("${A:5}", "5"),
            ("${A:}", ""),
            ("/${A:x}/${B:y}.*", "/x/y.*"),
            ("${A:${B:x}y}z", "xyz"),
            ("${A:http://x}", "http://x"),
            ("${A}-${B:b}", "${A}-b"),
            ("${A:x", "${A:x"),
            ("x}", "x}"),
        ] {
            let mut node = Node::parse(&format!("'{text}'")).unwrap();
            substitute(&mut node, &mut Vec::new());
            let (Value::Plain(found) | Value::Quoted(found)) = &node.value else {
                panic!("{text}: {node:?}");
            };
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn nesting_has_a_bound() {
        let text = format!("{}x{}", "${A:".repeat(100_000), "}".repeat(100_000));
        let mut node = Node::parse(&format!("'{text}'")).unwrap();
        let mut remarks = Vec::new();
        substitute(&mut node, &mut remarks);
        assert!(node.as_text().is_some_and(|text| text.contains("${A:x}")));
        assert!(remarks.len() <= MAX_DEPTH);
    }
}
