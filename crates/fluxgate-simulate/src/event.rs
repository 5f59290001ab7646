//! A recorded request or settlement, and its form in JSON.

use std::borrow::Cow;
use std::fmt;

use fluxgate_core::json::{
    ContextFields, Text, concat_names, read_once, whole_number, without_position,
};
use fluxgate_core::store::Micros;
use fluxgate_core::{RequestContext, RequestContextBuilder, Timestamp};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::time;

/// Longer holds are cut to this. The hold still ends after `Timestamp::MAX`, so the result is the
/// same.
const MAX_HOLD_US: u64 = 1 << 62;

/// A line of the record.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    pub(crate) at: Timestamp,
    pub(crate) kind: EventKind<'a>,
}

/// A request or a settlement.
#[derive(Debug)]
pub(crate) enum EventKind<'a> {
    Request(RecordedRequest<'a>),
    Settlement(RecordedSettlement<'a>),
}

/// A recorded request.
#[derive(Debug)]
pub(crate) struct RecordedRequest<'a> {
    pub(crate) rule_set: Option<Cow<'a, str>>,
    pub(crate) context: RequestContext<'a>,
    /// The name by which its hold is settled.
    pub(crate) hold: Option<Cow<'a, str>>,
}

/// A recorded settlement.
#[derive(Debug)]
pub(crate) struct RecordedSettlement<'a> {
    /// The name of the hold.
    pub(crate) hold: Cow<'a, str>,
    pub(crate) cost: Option<u64>,
    /// The real values of the attributes that rules take their cost from.
    pub(crate) attributes: Vec<(Box<str>, u64)>,
}

impl<'a> Event<'a> {
    /// Parses a line that is a JSON object.
    pub(crate) fn from_json(line: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "not UTF-8")?;
        if !text.trim_ascii_start().starts_with('{') {
            return Err("not a JSON object".into());
        }
        let mut fields: Fields<'_> = serde_json::from_str(text).map_err(|error| {
            // The text is a single line, so only the column is reported.
            format!("{} (column {})", without_position(&error), error.column())
        })?;
        let at = match (fields.t.take().flatten(), fields.time.take().flatten()) {
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
        if let Some(hold) = fields.settle.take().flatten() {
            let kind = EventKind::Settlement(fields.into_settlement(hold.0)?);
            return Ok(Self { at, kind });
        }
        let hold = fields.hold.take().flatten();
        let hold_us = fields.hold_us.take().flatten().map(|span| {
            let span = whole_number(span.get()).filter(|span| *span > 0);
            span.ok_or("`hold_us` must be a whole number of microseconds from 1")
        });
        let mut context = fields.context;
        let rule_set = context.rule_set.take();
        let mut context = RequestContextBuilder::from(context.into_context()?);
        if let Some(span) = hold_us.transpose()? {
            context = context.hold_for(Micros::new(span.min(MAX_HOLD_US)));
        }
        if hold.is_some() {
            context = context.held();
        }
        let kind = EventKind::Request(RecordedRequest {
            rule_set,
            context: context.build(),
            hold: hold.map(|hold| hold.0),
        });
        Ok(Self { at, kind })
    }
}

#[cfg(test)]
impl<'a> Event<'a> {
    /// Returns the context of a request.
    pub(crate) fn into_context(self) -> RequestContext<'a> {
        match self.kind {
            EventKind::Request(request) => request.context,
            EventKind::Settlement(other) => panic!("{other:?} is not a request"),
        }
    }
}

impl<'a> Fields<'a> {
    fn into_settlement(self, hold: Cow<'a, str>) -> Result<RecordedSettlement<'a>, String> {
        let hold_fields = [
            ("hold", self.hold.flatten().is_some()),
            ("hold_us", self.hold_us.flatten().is_some()),
        ];
        let is_given = |(name, is_given): (_, bool)| is_given.then_some(name);
        let mut given = hold_fields
            .into_iter()
            .filter_map(is_given)
            .chain(self.context.given());
        if let Some(name) = given.find(|name| !matches!(*name, "cost" | "attributes")) {
            return Err(format!("`{name}` does not belong to a line with `settle`"));
        }
        drop(given);
        let context = self.context.into_context()?;
        let mut attributes = Vec::new();
        for (name, value) in context.attributes() {
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let units = value.parse().ok().filter(|_| is_number).ok_or_else(|| {
                format!("attribute `{name}` must be a whole number from 0, not {value:?}")
            })?;
            attributes.push((name.into(), units));
        }
        if context.cost().is_some() && !attributes.is_empty() {
            return Err("expected `cost` or `attributes`, found both".into());
        }
        Ok(RecordedSettlement {
            hold,
            cost: context.cost(),
            attributes,
        })
    }
}

const FIELD_NAMES: [&str; 14] = concat_names(&[
    &["t", "time"],
    &ContextFields::NAMES,
    &["hold", "hold_us", "settle"],
]);

/// The fields of a line. `None` is a field that was not read; `Some(None)` is a `null`, which
/// counts as absent.
#[derive(Default)]
struct Fields<'a> {
    t: Option<Option<&'a RawValue>>,
    time: Option<Option<Text<'a>>>,
    hold: Option<Option<Text<'a>>>,
    hold_us: Option<Option<&'a RawValue>>,
    settle: Option<Option<Text<'a>>>,
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
                        "hold" => read_once("hold", &mut fields.hold, &mut map)?,
                        "hold_us" => read_once("hold_us", &mut fields.hold_us, &mut map)?,
                        "settle" => read_once("settle", &mut fields.settle, &mut map)?,
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
