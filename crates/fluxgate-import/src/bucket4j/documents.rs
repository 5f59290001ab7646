//! The documents of an `application.yml`. Each may belong to a profile.

use fluxgate_core::yaml::{Faults, Node, Value};

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
}
