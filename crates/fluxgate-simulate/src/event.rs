//! A recorded request, and its form in JSON.

use std::borrow::Cow;
use std::fmt;

use fluxgate_core::internals::json::{
    ContextFields, Text, read_once, whole_number, without_position,
};
use fluxgate_core::{RequestContext, Timestamp};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::time;

/// A recorded request.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    pub(crate) at: Timestamp,
    pub(crate) rule_set: Option<Cow<'a, str>>,
    pub(crate) context: RequestContext<'a>,
}

impl<'a> Event<'a> {
    /// Parses a line that is a JSON object.
    pub(crate) fn from_json(line: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "not UTF-8")?;
        if !text.trim_ascii_start().starts_with('{') {
            return Err("not a JSON object".into());
        }
        let mut fields: Fields<'_> = serde_json::from_str(text).map_err(|error| {
            // The line is always the first.
            format!("{} (column {})", without_position(&error), error.column())
        })?;
        let at = match (fields.t.flatten(), fields.time.flatten()) {
            (Some(t), None) => whole_number(t.get())
                .and_then(Timestamp::from_micros)
                .ok_or_else(|| {
                    let most = Timestamp::MAX.micros();
                    format!("`t` must be a whole number of microseconds from 0 to {most}")
                })?,
            (None, Some(time)) => time::parse_rfc3339(&time.0)
                .ok_or("`time` must be RFC 3339, from 1970 on, such as 2026-01-31T23:59:59.5Z")?,
            (Some(_), Some(_)) => return Err("expected `t` or `time`, found both".into()),
            (None, None) => return Err("expected `t` or `time`, found neither".into()),
        };
        Ok(Self {
            at,
            rule_set: fields.context.rule_set.take(),
            context: fields.context.into_context()?,
        })
    }
}

const FIELD_NAMES: [&str; 11] = {
    let [a, b, c, d, e, f, g, h, i] = ContextFields::NAMES;
    ["t", "time", a, b, c, d, e, f, g, h, i]
};

/// The fields as they stand. The inner `None` is a `null`, which counts as absent.
#[derive(Default)]
struct Fields<'a> {
    t: Option<Option<&'a RawValue>>,
    time: Option<Option<Text<'a>>>,
    context: ContextFields<'a>,
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
                        "t" => read_once("t", &mut fields.t, &mut map)?,
                        "time" => read_once("time", &mut fields.time, &mut map)?,
                        name if fields.context.read(name, &mut map)? => {}
                        name => return Err(de::Error::unknown_field(name, &FIELD_NAMES)),
                    }
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}
