//! The documents of an `application.yml` with settings of Bucket4j.

use fluxgate_core::yaml::{Faults, Node, Value};

use crate::spring;

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
        for (name, key, _) in &fields {
            if let Some(rest) = name.strip_prefix("bucket4j.") {
                let text = format!("`{name}` must be written as `{rest}` below `bucket4j`");
                faults.add(key.position, text);
            }
        }
        let (_, _, settings) = fields.into_iter().find(|(name, ..)| *name == "bucket4j")?;
        Some(Self {
            line: node.position.line,
            profile: spring::profile(node),
            settings: settings.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_needs_settings() {
        let read = |text| Document::read(&Node::parse(text).unwrap(), &mut Faults::default());
        for text in ["", "[]", "spring: {}"] {
            assert!(read(text).is_none(), "{text}");
        }
        let found = read("spring: {profiles: dev}\nbucket4j: {}\n").unwrap();
        assert_eq!(found.profile.as_deref(), Some("dev"));
    }
}
