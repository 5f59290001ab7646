//! Rules as JSON. The tree keeps the order of fields and the text of numbers, so that stored rules
//! are returned with the order and the numbers they were written with.

use std::fmt;

use fluxgate_core::yaml::{Fault, Node, Position, Value};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The maximum nesting depth.
const MAX_DEPTH: usize = 64;

/// Parses JSON. Text that is JSON but not YAML has no positions.
pub(crate) fn parse_json(text: &str) -> Result<Node, Fault> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| fault(&error))?;
    let tree = read(raw, 0).map_err(|message| Fault {
        position: NO_POSITION,
        message,
    })?;
    Ok(Node::parse(text).unwrap_or(tree))
}

/// The position of values whose place in the text is unknown.
const NO_POSITION: Position = Position { line: 1, column: 1 };

/// Returns a value without a position.
pub(crate) fn unplaced(value: Value) -> Node {
    Node {
        value,
        position: NO_POSITION,
    }
}

fn read(raw: &RawValue, depth: usize) -> Result<Node, String> {
    if depth > MAX_DEPTH {
        return Err(format!("nested too deeply: over {MAX_DEPTH} levels"));
    }
    let text = raw.get();
    let odd = |error: serde_json::Error| error.to_string();
    Ok(unplaced(match text.as_bytes().first() {
        Some(b'"') => Value::Quoted(serde_json::from_str(text).map_err(odd)?),
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(odd)?;
            let items = items.into_iter().map(|item| read(item, depth + 1));
            Value::List(items.collect::<Result<_, _>>()?)
        }
        Some(b'{') => {
            let ObjectPairs(pairs) = serde_json::from_str(text).map_err(odd)?;
            let pairs = pairs.into_iter().map(|(name, value)| {
                let name = unplaced(Value::Quoted(name));
                Ok((name, read(value, depth + 1)?))
            });
            Value::Map(pairs.collect::<Result<_, String>>()?)
        }
        _ => Value::Plain(text.to_owned()),
    }))
}

/// Returns a tree as JSON, in one line without spaces. A plain scalar that JSON knows as a number, a
/// boolean or null is one; any other is a string.
pub(crate) fn to_json(node: &Node) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    match &node.value {
        Value::Plain(_) if node.is_null() => "null".into(),
        Value::Plain(text) => match serde_json::from_str(text) {
            Ok(serde_json::Value::String(_)) | Err(_) => quoted(text),
            Ok(_) => text.clone(),
        },
        Value::Quoted(text) => quoted(text),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(to_json).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter().filter_map(|(name, value)| {
                Some(format!("{}:{}", quoted(name.as_text()?), to_json(value)))
            });
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
        }
    }
}

/// The fields of an object, including duplicates, which `RuleSets::read` reports.
struct ObjectPairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for ObjectPairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = ObjectPairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(ObjectPairs(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor)
    }
}

fn fault(error: &serde_json::Error) -> Fault {
    let what = fluxgate_core::json::without_position(error);
    Fault {
        position: Position {
            line: error.line().max(1),
            column: error.column().max(1),
        },
        message: format!("not valid JSON: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_what_is_read_again() {
        let text = r#"{"z":[1.50,"a\"b",true,null,{}],"a":{"b":[],"b2":-0}}"#;
        assert_eq!(to_json(&parse_json(text).unwrap()), text);
        let spaced = parse_json(" { \"a\" :\t1 } ").unwrap();
        assert_eq!(to_json(&spaced), "{\"a\":1}");
    }

    #[test]
    fn what_is_no_json_has_a_place() {
        let fault = parse_json("{\n  \"a\": }").unwrap_err();
        assert_eq!(fault.to_string(), "2:8: not valid JSON: expected value");
        for bad in ["", "a: 1", "{'a':1}", "[1,]", "{} {}", &"[".repeat(100)] {
            assert!(parse_json(bad).is_err(), "{bad}");
        }
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert!(parse_json(&deep).is_err());
    }

    /// Tabs, surrogates and control characters: valid JSON that YAML parsers may reject.
    #[test]
    fn json_that_is_no_yaml_is_read_all_the_same() {
        for text in [
            "{\n\t\"id\":\t\"r\"\n}",
            "{\"id\":\"\\ud83d\\ude00\"}",
            "{\"id\":\"\\u0001\\u007f\"}",
        ] {
            let raw: &RawValue = serde_json::from_str(text).unwrap();
            let node = parse_json(text).unwrap();
            assert_eq!(node.canonical(), read(raw, 0).unwrap().canonical());
            let again = parse_json(&to_json(&node)).unwrap();
            assert_eq!(again.canonical(), node.canonical());
        }
    }
}
