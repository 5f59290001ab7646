//! One recorded request in JSON.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use fluxgate_core::{RequestContext, Timestamp};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::time;

/// A recorded request.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub(super) at: Timestamp,
    pub(super) rule_set: Option<Cow<'a, str>>,
    pub(super) context: RequestContext<'a>,
}

/// The fields as they stand; `null` counts as absent.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    t: Option<&'a RawValue>,
    #[serde(borrow)]
    time: Option<Text<'a>>,
    #[serde(borrow)]
    rule_set: Option<Text<'a>>,
    #[serde(borrow)]
    ip: Option<Text<'a>>,
    #[serde(borrow)]
    user: Option<Text<'a>>,
    #[serde(borrow)]
    api_key: Option<Text<'a>>,
    #[serde(borrow)]
    method: Option<Text<'a>>,
    #[serde(borrow)]
    path: Option<Text<'a>>,
    #[serde(borrow)]
    headers: Option<Texts<'a>>,
    #[serde(borrow)]
    attributes: Option<Texts<'a>>,
    #[serde(borrow)]
    cost: Option<&'a RawValue>,
}

impl<'a> Event<'a> {
    pub(super) fn from_json(line: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
        // A list would do for serde as well.
        if !text.trim_ascii_start().starts_with('{') {
            return Err("not a JSON object".into());
        }
        let fields: Fields<'_> = serde_json::from_str(text).map_err(|error| explain(&error))?;
        Self::new(fields)
    }

    fn new(fields: Fields<'a>) -> Result<Self, String> {
        let at = match (fields.t, fields.time) {
            (Some(t), None) => whole_number(t.get())
                .and_then(Timestamp::from_micros)
                .ok_or_else(|| {
                    let most = Timestamp::MAX.micros();
                    format!("`t` must be a whole number of microseconds from 0 to {most}")
                })?,
            (None, Some(time)) => time::parse_rfc3339(&time.0)
                .ok_or("`time` must be RFC 3339, from 1970 on, such as 2026-01-31T23:59:59.5Z")?,
            (Some(_), Some(_)) => return Err("both `t` and `time`".into()),
            (None, None) => return Err("neither `t` nor `time`".into()),
        };
        let mut context = RequestContext::builder();
        if let Some(ip) = fields.ip {
            let address = ip.0.parse::<IpAddr>();
            let address = address.map_err(|_| format!("`ip` is no address: {:?}", ip.0))?;
            context = context.ip(address);
        }
        if let Some(user) = fields.user {
            context = context.user(user.0);
        }
        if let Some(api_key) = fields.api_key {
            context = context.api_key(api_key.0);
        }
        if let Some(method) = fields.method {
            context = context.method(method.0);
        }
        if let Some(path) = fields.path {
            context = context.path(path.0);
        }
        if let Some(cost) = fields.cost {
            let cost = whole_number(cost.get());
            context = context.cost(cost.ok_or("`cost` must be a whole number from 0")?);
        }
        if let Some(headers) = fields.headers {
            context = context.headers(headers.unique(Names::Headers)?);
        }
        if let Some(attributes) = fields.attributes {
            context = context.attributes(attributes.unique(Names::Attributes)?);
        }
        Ok(Self {
            at,
            rule_set: fields.rule_set.map(|name| name.0),
            context: context.build(),
        })
    }
}

/// Without the line, which is always the first of one.
fn explain(error: &serde_json::Error) -> String {
    format!("{} (column {})", without_place(error), error.column())
}

/// What is wrong, without where.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // The name of a field may hold the same words; the place stands last.
    match text.rsplit_once(" at line ") {
        Some((what, _)) => what.to_owned(),
        None => text,
    }
}

/// Digits only; what is past the end of u64 is as good as its end.
fn whole_number(text: &str) -> Option<u64> {
    let digits = if text == "-0" { "0" } else { text };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

/// A string, borrowed where it has no escapes.
struct Text<'a>(Cow<'a, str>);

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
struct Texts<'a>(Pairs<'a>);

/// Names and values, in the order of the line.
type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// What the names of [`Texts`] are, and so when two are the same.
#[derive(Clone, Copy)]
enum Names {
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
    /// The pairs, if no name stands twice.
    fn unique(self, names: Names) -> Result<Pairs<'a>, String> {
        const FEW: usize = 16;
        let mut given = self.0.iter().map(|(name, _)| &**name).enumerate();
        let twice = if self.0.len() <= FEW {
            given.find(|(index, name)| {
                let mut before = self.0[..*index].iter();
                before.any(|(known, _)| names.are_same(known, name))
            })
        } else {
            // Each compared with each takes minutes for a line full of names.
            let mut seen = HashSet::with_capacity(self.0.len());
            given.find(|(_, name)| !seen.insert(names.folded(name)))
        };
        let Some((_, name)) = twice else {
            return Ok(self.0);
        };
        let what = match names {
            Names::Headers => "header",
            Names::Attributes => "attribute",
        };
        Err(format!("{what} {name:?} stands twice"))
    }
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
