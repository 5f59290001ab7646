//! One recorded request in JSON.

use std::borrow::Cow;
use std::fmt;

use fluxgate_core::json::{ContextFields, Text, read_value, whole_number, without_position};
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

/// The names of all fields.
const FIELDS: [&str; 11] = {
    let [a, b, c, d, e, f, g, h, i] = ContextFields::NAMES;
    ["t", "time", a, b, c, d, e, f, g, h, i]
};

/// The fields as they stand; `null` counts as absent.
#[derive(Default)]
struct Fields<'a> {
    t: Option<&'a RawValue>,
    time: Option<Text<'a>>,
    context: ContextFields<'a>,
    has_t: bool,
    has_time: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields<'de>, M::Error> {
                let mut fields = Fields::default();
                while let Some(Text(name)) = map.next_key()? {
                    match &*name {
                        "t" if fields.has_t => return Err(de::Error::duplicate_field("t")),
                        "t" => {
                            fields.has_t = true;
                            fields.t = read_value("t", &mut map)?;
                        }
                        "time" if fields.has_time => {
                            return Err(de::Error::duplicate_field("time"));
                        }
                        "time" => {
                            fields.has_time = true;
                            fields.time = read_value("time", &mut map)?;
                        }
                        name => {
                            if !fields.context.read(name, &mut map)? {
                                return Err(de::Error::unknown_field(name, &FIELDS));
                            }
                        }
                    }
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

impl<'a> Event<'a> {
    pub(super) fn from_json(line: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
        if !text.trim_ascii_start().starts_with('{') {
            return Err("not a JSON object".into());
        }
        let fields: Fields<'_> = serde_json::from_str(text).map_err(|error| explain(&error))?;
        Self::new(fields)
    }

    fn new(mut fields: Fields<'a>) -> Result<Self, String> {
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
        Ok(Self {
            at,
            rule_set: fields.context.rule_set.take(),
            context: fields.context.into_context()?,
        })
    }
}

/// Without the line, which is always the first of one.
fn explain(error: &serde_json::Error) -> String {
    format!("{} (column {})", without_position(error), error.column())
}
