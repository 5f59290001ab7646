//! Strings, numbers and objects of strings, borrowed from the input where possible.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A field whose value is not what it must be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FieldError(pub(super) String);

impl From<FieldError> for String {
    fn from(error: FieldError) -> Self {
        error.0
    }
}

/// Returns the message of an error of `serde_json`, without the position that it
/// ends with.
pub fn without_position(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    // The name of a field may contain the same words.
    match text.rsplit_once(" at line ") {
        Some((message, _)) => message.to_owned(),
        None => text,
    }
}

/// Parses digits, and nothing but digits. A number above `u64::MAX` counts as that.
pub fn whole_number(text: &str) -> Option<u64> {
    let digits = if text == "-0" { "0" } else { text };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

/// A string, borrowed if it has no escapes.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// Headers or attributes. Numbers and booleans count as their JSON text, null
/// as absent.
#[derive(Debug)]
pub struct Texts<'a>(pub Pairs<'a>);

/// Names and values, in the order of the input.
pub type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// The kind of the names in [`Pairs`], which decides whether two are the same.
#[derive(Clone, Copy, Debug)]
pub enum Names {
    /// Header names compare without case.
    Headers,
    /// Attribute names compare byte by byte.
    Attributes,
}

impl Names {
    fn are_same(self, a: &str, b: &str) -> bool {
        match self {
            Self::Headers => a.eq_ignore_ascii_case(b),
            Self::Attributes => a == b,
        }
    }

    /// Returns the same text for names that are the same.
    fn folded(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Headers => Cow::Owned(name.to_ascii_lowercase()),
            Self::Attributes => Cow::Borrowed(name),
        }
    }
}

/// Returns the pairs if no name appears twice.
///
/// # Errors
/// Names the first that does.
pub fn unique(pairs: Pairs<'_>, names: Names) -> Result<Pairs<'_>, FieldError> {
    const FEW: usize = 16;
    let mut given = pairs.iter().map(|(name, _)| &**name).enumerate();
    let twice = if pairs.len() <= FEW {
        given.find(|(index, name)| {
            let mut before = pairs[..*index].iter();
            before.any(|(known, _)| names.are_same(known, name))
        })
    } else {
        // Comparing every pair takes minutes for a line full of names.
        let mut seen = HashSet::with_capacity(pairs.len());
        given.find(|(_, name)| !seen.insert(names.folded(name)))
    };
    let Some((_, name)) = twice else {
        return Ok(pairs);
    };
    let kind = match names {
        Names::Headers => "header",
        Names::Attributes => "attribute",
    };
    Err(FieldError(format!("{kind} {name:?} appears twice")))
}

impl<'de: 'a, 'a> Deserialize<'de> for Texts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;

        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Texts<'de>, M::Error> {
                let mut texts = Vec::new();
                while let Some(name) = map.next_key::<Text<'de>>()? {
                    let raw = map.next_value::<&RawValue>()?.get();
                    if raw == "null" {
                        continue;
                    }
                    let value = match raw.as_bytes().first() {
                        Some(b'"') if !raw.contains('\\') => Cow::Borrowed(&raw[1..raw.len() - 1]),
                        Some(b'"') => {
                            // The position in the value is not that in the line.
                            let text: Text<'_> = serde_json::from_str(raw)
                                .map_err(|error| de::Error::custom(without_position(&error)))?;
                            text.0
                        }
                        Some(b'{' | b'[') => {
                            return Err(de::Error::custom(format_args!(
                                "the value of {:?} must be a string, number or boolean",
                                name.0
                            )));
                        }
                        _ => Cow::Borrowed(raw),
                    };
                    texts.push((name.0, value));
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_map(TextsVisitor)
    }
}
