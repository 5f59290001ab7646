//! JSON as a tree that keeps the order of fields and the text of numbers, so that stored
//! rules read as they were written.

use std::borrow::Cow;
use std::fmt;

use fluxgate_core::yaml::{Fault, Node, Position, Value};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The depth to which rules are read.
const MAX_DEPTH: usize = 64;
/// The position of values without one.
const NO_POSITION: Position = Position { line: 1, column: 1 };

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    /// A number, a boolean or null, as it was written.
    Plain(String),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object, in the order of the text.
    Map(Vec<(String, Json)>),
}

impl Json {
    /// Parses a text.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| fault(&error))?;
        Self::read(raw, 0).map_err(|message| Fault {
            position: NO_POSITION,
            message,
        })
    }

    fn read(raw: &RawValue, depth: usize) -> Result<Self, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested too deeply: over {MAX_DEPTH} levels"));
        }
        let text = raw.get();
        let odd = |error: serde_json::Error| error.to_string();
        Ok(match text.as_bytes().first() {
            Some(b'"') => Self::Text(serde_json::from_str(text).map_err(odd)?),
            Some(b'[') => {
                let items = serde_json::from_str::<Vec<&RawValue>>(text)
                    .map_err(odd)?
                    .into_iter()
                    .map(|item| Self::read(item, depth + 1));
                Self::List(items.collect::<Result<_, _>>()?)
            }
            Some(b'{') => {
                let ObjectPairs(pairs) = serde_json::from_str(text).map_err(odd)?;
                let pairs = pairs
                    .into_iter()
                    .map(|(name, value)| Ok((name.into_owned(), Self::read(value, depth + 1)?)));
                Self::Map(pairs.collect::<Result<_, String>>()?)
            }
            _ => Self::Plain(text.to_owned()),
        })
    }

    /// Returns the value of a field, if this is an object that has it.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Map(pairs) = self else { return None };
        let found = pairs.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }

    /// Returns the value of a field, mutably.
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        let Self::Map(pairs) = self else { return None };
        let found = pairs.iter_mut().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }

    /// Sets a field of an object, in its old place or at the end.
    pub(crate) fn set(&mut self, name: &str, value: Self) {
        match self.get_mut(name) {
            Some(old) => *old = value,
            None => {
                if let Self::Map(pairs) = self {
                    pairs.push((name.to_owned(), value));
                }
            }
        }
    }

    /// Its text, as the rules are read: a number counts as its digits.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Plain(text) | Self::Text(text) => Some(text),
            Self::List(_) | Self::Map(_) => None,
        }
    }

    /// Returns the value of a YAML tree. A plain scalar that JSON knows as a number, a boolean
    /// or null is one; any other is a string.
    pub(crate) fn from_node(node: &Node) -> Self {
        match &node.value {
            Value::Plain(_) if node.is_null() => Self::Plain("null".into()),
            Value::Plain(text) => match serde_json::from_str::<serde_json::Value>(text) {
                Ok(serde_json::Value::String(_)) | Err(_) => Self::Text(text.clone()),
                Ok(_) => Self::Plain(text.clone()),
            },
            Value::Quoted(text) => Self::Text(text.clone()),
            Value::List(items) => Self::List(items.iter().map(Self::from_node).collect()),
            Value::Map(pairs) => {
                let pairs = pairs.iter().filter_map(|(name, value)| {
                    Some((name.as_text()?.to_owned(), Self::from_node(value)))
                });
                Self::Map(pairs.collect())
            }
        }
    }

    /// Returns the same value as a YAML tree, without positions.
    pub(crate) fn to_node(&self) -> Node {
        let value = match self {
            Self::Plain(text) => Value::Plain(text.clone()),
            Self::Text(text) => Value::Quoted(text.clone()),
            Self::List(items) => Value::List(items.iter().map(Self::to_node).collect()),
            Self::Map(pairs) => {
                let pairs = pairs
                    .iter()
                    .map(|(name, value)| (Self::Text(name.clone()).to_node(), value.to_node()));
                Value::Map(pairs.collect())
            }
        };
        Node {
            value,
            position: NO_POSITION,
        }
    }
}

/// In one line, without spaces.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |f: &mut fmt::Formatter<'_>, text: &str| {
            let quoted = serde_json::to_string(text).map_err(|_| fmt::Error)?;
            f.write_str(&quoted)
        };
        match self {
            Self::Plain(plain) => f.write_str(plain),
            Self::Text(it) => text(f, it),
            Self::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "[" } else { "," })?;
                }
                f.write_str(if items.is_empty() { "[]" } else { "]" })
            }
            Self::Map(pairs) => {
                for (index, (name, value)) in pairs.iter().enumerate() {
                    f.write_str(if index == 0 { "{" } else { "," })?;
                    text(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str(if pairs.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

/// Parses JSON, also as a YAML tree with the positions of the text. Text that is JSON but
/// not YAML has no positions.
pub(crate) fn parse_node(text: &str) -> Result<(Json, Node), Fault> {
    let json = Json::parse(text)?;
    let node = Node::parse(text).unwrap_or_else(|_| json.to_node());
    Ok((json, node))
}

/// The fields of an object, duplicates included: `RuleSets::read` reports them.
struct ObjectPairs<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for ObjectPairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = ObjectPairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(
                self,
                mut map: M,
            ) -> Result<ObjectPairs<'de>, M::Error> {
                let mut pairs = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    pairs.push((Cow::Owned(name), map.next_value()?));
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
        let json = Json::parse(text).unwrap();
        assert_eq!(json.to_string(), text);
        assert_eq!(
            Json::parse(" { \"a\" :\t1 } ").unwrap().to_string(),
            "{\"a\":1}"
        );
    }

    #[test]
    fn what_is_no_json_has_a_place() {
        let fault = Json::parse("{\n  \"a\": }").unwrap_err();
        assert_eq!(fault.to_string(), "2:8: not valid JSON: expected value");
        for bad in ["", "a: 1", "{'a':1}", "[1,]", "{} {}", &"[".repeat(100)] {
            assert!(Json::parse(bad).is_err(), "{bad}");
        }
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert!(Json::parse(&deep).is_err());
    }

    /// Tabs, surrogates and control characters: good JSON, but hardly YAML.
    #[test]
    fn json_that_is_no_yaml_is_read_all_the_same() {
        for text in [
            "{\n\t\"id\":\t\"r\"\n}",
            "{\"id\":\"\\ud83d\\ude00\"}",
            "{\"id\":\"\\u0001\\u007f\"}",
        ] {
            let (json, node) = parse_node(text).unwrap();
            assert_eq!(node.canonical(), json.to_node().canonical());
            let (again, _) = parse_node(&json.to_string()).unwrap();
            assert_eq!(again, json);
        }
    }
}
