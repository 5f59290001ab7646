//! Parses the YAML of other programs, which may have merge keys.

use std::collections::HashSet;

use fluxgate_core::yaml::{Fault, Node, Value};

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
