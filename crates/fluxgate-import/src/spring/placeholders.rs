//! Placeholders such as `${NAME:default}`.

use fluxgate_core::yaml::{Node, Value};

use crate::draft::Remark;

/// The deepest nesting of placeholders.
const MAX_DEPTH: usize = 16;

/// Replaces each placeholder in the scalars of a tree by its default, with a remark. One without
/// a default stays.
pub(crate) fn substitute(node: &mut Node, remarks: &mut Vec<Remark>) {
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
