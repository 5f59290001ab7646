//! Texts in JSON, borrowed where they can be.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What is wrong, without where.
pub(crate) fn without_place(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    // The name of a field may hold the same words; the place stands last.
    match text.rsplit_once(" at line ") {
        Some((what, _)) => what.to_owned(),
        None => text,
    }
}

/// Digits only; what is past the end of u64 is as good as its end.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    let digits = if text == "-0" { "0" } else { text };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

/// A string, borrowed where it has no escapes.
#[derive(Debug)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// Headers or attributes. Numbers and booleans count as their JSON text, null
/// as absent.
pub(super) struct Texts<'a>(Pairs<'a>);

/// Names and values, in the order of the line.
pub(crate) type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// What the names of [`Texts`] are, and so when two are the same.
#[derive(Clone, Copy)]
pub(crate) enum Names {
    Headers,
    Attributes,
}

impl Names {
    fn are_same(self, a: &str, b: &str) -> bool {
        match self {
            Self::Headers => a.eq_ignore_ascii_case(b),
            Self::Attributes => a == b,
        }
    }

    /// The same text for the same names.
    fn folded(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Headers => Cow::Owned(name.to_ascii_lowercase()),
            Self::Attributes => Cow::Borrowed(name),
        }
    }
}

impl<'a> Texts<'a> {
    /// The pairs, if no name appears twice.
    pub(super) fn unique(self, names: Names) -> Result<Pairs<'a>, String> {
        unique(self.0, names)
    }
}

/// The same pairs, if no name appears twice.
pub(crate) fn unique(pairs: Pairs<'_>, names: Names) -> Result<Pairs<'_>, String> {
    const FEW: usize = 16;
    let mut given = pairs.iter().map(|(name, _)| &**name).enumerate();
    let twice = if pairs.len() <= FEW {
        given.find(|(index, name)| {
            let mut before = pairs[..*index].iter();
            before.any(|(known, _)| names.are_same(known, name))
        })
    } else {
        // Each compared with each takes minutes for a line full of names.
        let mut seen = HashSet::with_capacity(pairs.len());
        given.find(|(_, name)| !seen.insert(names.folded(name)))
    };
    let Some((_, name)) = twice else {
        return Ok(pairs);
    };
    let what = match names {
        Names::Headers => "header",
        Names::Attributes => "attribute",
    };
    Err(format!("{what} {name:?} appears twice"))
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
                            // Its place in the value is not its place in the line.
                            let text: Text<'_> = serde_json::from_str(raw)
                                .map_err(|error| de::Error::custom(without_place(&error)))?;
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
