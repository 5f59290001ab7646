//! The effective configuration, as YAML that can be loaded again, with comments that name the
//! overrides.

use fluxgate_core::text::yaml_scalar;
use fluxgate_core::yaml::{Node, Value};

use super::origins::OverrideSource;
use super::raw::{ConfigError, RawConfig};
use super::tree;
use super::warnings::config_warnings;

/// Returns the effective configuration as YAML: with defaults filled in, secrets redacted, and
/// warnings and the origins of overridden values as comments.
pub fn effective_yaml(raw: &RawConfig) -> Result<String, ConfigError> {
    let (config, effective) = raw.check_effective()?;
    let file = raw.origins.file();
    let mut text = comment(&format!("The effective configuration of {file}."));
    for warning in config_warnings(&config) {
        text += &comment(&format!("warning: {warning}"));
    }
    text += &to_yaml(&effective, raw);
    Ok(text)
}

/// Returns a comment of one line. Characters that are not printable are escaped.
fn comment(text: &str) -> String {
    let mut line = String::from("# ");
    for char in text.chars() {
        if is_printable(char) {
            line.push(char);
        } else {
            line.extend(char.escape_unicode());
        }
    }
    line + "\n"
}

/// Returns a tree as YAML, with the origins from a raw config that has the same paths.
fn to_yaml(node: &Node, raw: &RawConfig) -> String {
    let mut writer = Writer {
        raw,
        out: String::new(),
    };
    match &node.value {
        Value::Map(pairs) => writer.write_pairs(pairs, 0, Some(&raw.tree), None),
        _ => writer.out.push_str("{}\n"),
    }
    writer.out
}

struct Writer<'a> {
    raw: &'a RawConfig,
    out: String,
}

impl<'a> Writer<'a> {
    /// Writes each pair. Values from the override `named` need no comment: it has been named
    /// already.
    fn write_pairs(
        &mut self,
        pairs: &[(Node, Node)],
        indent: usize,
        origin: Option<&'a Node>,
        named: Option<&OverrideSource>,
    ) {
        for (key, value) in pairs {
            let key = key.as_text().unwrap_or_default();
            let origin = origin.and_then(|origin| tree::child(origin, key));
            self.out.push_str(&" ".repeat(indent));
            self.out.push_str(&text(key));
            self.out.push(':');
            self.write_value(value, indent + 2, origin, named);
        }
    }

    /// Writes a value after the colon of its key, up to the end of its last line.
    fn write_value(
        &mut self,
        node: &Node,
        indent: usize,
        origin: Option<&'a Node>,
        named: Option<&OverrideSource>,
    ) {
        let source = origin.and_then(|node| self.raw.origins.source_of(node));
        let comment = match source {
            Some(source) if Some(source) != named => format!(" # {source}"),
            _ => String::new(),
        };
        match &node.value {
            Value::Map(pairs) if !pairs.is_empty() => {
                self.out.push_str(&format!("{comment}\n"));
                self.write_pairs(pairs, indent, origin, source);
            }
            Value::List(items) if !items.iter().all(is_scalar) => {
                self.out.push_str(&format!("{comment}\n"));
                self.write_items(items, indent, origin, source);
            }
            _ => {
                let mut comment = comment;
                if comment.is_empty() {
                    comment = self.item_origins(origin, named);
                }
                self.out.push_str(&format!(" {}{comment}\n", inline(node)));
            }
        }
    }

    fn write_items(
        &mut self,
        items: &[Node],
        indent: usize,
        origin: Option<&'a Node>,
        named: Option<&OverrideSource>,
    ) {
        for (index, item) in items.iter().enumerate() {
            let origin = origin.and_then(|origin| match &origin.value {
                Value::List(items) => items.get(index),
                _ => None,
            });
            let spaces = " ".repeat(indent);
            let source = origin.and_then(|node| self.raw.origins.source_of(node));
            if let Some(source) = source.filter(|source| Some(*source) != named) {
                self.out.push_str(&format!("{spaces}# {source}\n"));
            }
            match &item.value {
                Value::Map(pairs) if !pairs.is_empty() => {
                    let start = self.out.len();
                    self.write_pairs(pairs, indent + 2, origin, source);
                    let dash = format!("{spaces}- ");
                    self.out.replace_range(start..start + indent + 2, &dash);
                }
                _ => {
                    let item = inline(item);
                    self.out.push_str(&format!("{spaces}- {item}\n"));
                }
            }
        }
    }

    /// Returns a comment with the origins of the items of a list that is written in one line.
    fn item_origins(&self, origin: Option<&Node>, named: Option<&OverrideSource>) -> String {
        let Some(Value::List(items)) = origin.map(|origin| &origin.value) else {
            return String::new();
        };
        let sources = items
            .iter()
            .filter_map(|item| self.raw.origins.source_of(item));
        let mut sources: Vec<_> = sources
            .filter(|source| Some(*source) != named)
            .map(OverrideSource::to_string)
            .collect();
        sources.dedup();
        if sources.is_empty() {
            String::new()
        } else {
            format!(" # {}", sources.join(", "))
        }
    }
}

fn is_scalar(node: &Node) -> bool {
    matches!(node.value, Value::Plain(_) | Value::Quoted(_))
}

/// Returns a node as one line.
fn inline(node: &Node) -> String {
    match &node.value {
        Value::Plain(_) if node.is_null() => "null".into(),
        // Every number, boolean and null is safe.
        Value::Plain(plain) if is_safe(plain) => plain.clone(),
        Value::Plain(text_like) => text(text_like),
        Value::Quoted(quoted) => text(quoted),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| {
                let key = text(key.as_text().unwrap_or_default());
                format!("{key}: {}", inline(value))
            });
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns a text, in quotes unless it can only be read as a text. Paths and names of hosts need
/// none.
fn text(text: &str) -> String {
    let is_word = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    if is_word && is_safe(text) && text.contains(['.', '/', '+']) {
        text.into()
    } else {
        yaml_scalar(text)
    }
}

/// Returns whether a character is visible and has no meaning in a YAML comment.
fn is_printable(char: char) -> bool {
    char == ' ' || char.is_ascii_graphic() || char.is_alphanumeric()
}

fn is_safe(text: &str) -> bool {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./+".contains(&byte);
    !text.is_empty() && text != "-" && text.bytes().all(safe)
}
