//! Requests and decisions in JSON, as the HTTP API and the simulator exchange them.
//!
//! Requests are read with serde and borrow from the input wherever they can.
//! Decisions are written by hand, because most of a fast answer is its JSON.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::context::{RequestContext, RequestContextBuilder, RequestFields};
use crate::time::Micros;
use crate::{ActiveRule, Band, Decision, HoldId};

/// The fields that describe a request. A null counts as absent.
#[derive(Debug, Default)]
pub struct ContextFields<'a> {
    /// The rule set that the request is checked against.
    pub rule_set: Option<Cow<'a, str>>,
    ip: Option<Cow<'a, str>>,
    user: Option<Cow<'a, str>>,
    api_key: Option<Cow<'a, str>>,
    method: Option<Cow<'a, str>>,
    path: Option<Cow<'a, str>>,
    headers: Option<Texts<'a>>,
    attributes: Option<Texts<'a>>,
    cost: Option<&'a RawValue>,
    /// One bit for each field that was seen.
    seen: u16,
}

impl<'a> ContextFields<'a> {
    /// The names of the fields.
    pub const NAMES: [&'static str; 9] = [
        "rule_set",
        "ip",
        "user",
        "api_key",
        "method",
        "path",
        "headers",
        "attributes",
        "cost",
    ];

    /// Reads the value of the field of this name. Returns `false` without reading
    /// anything if the name is not one of [`ContextFields::NAMES`].
    ///
    /// # Errors
    /// If the field was read before, or if its value has the wrong type.
    pub fn read<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<bool, M::Error> {
        let Some(index) = Self::NAMES.iter().position(|known| *known == name) else {
            return Ok(false);
        };
        let known = Self::NAMES[index];
        if self.seen & 1 << index != 0 {
            return Err(de::Error::duplicate_field(known));
        }
        self.seen |= 1 << index;
        match known {
            "rule_set" => self.rule_set = read_text(name, map)?,
            "ip" => self.ip = read_text(name, map)?,
            "user" => self.user = read_text(name, map)?,
            "api_key" => self.api_key = read_text(name, map)?,
            "method" => self.method = read_text(name, map)?,
            "path" => self.path = read_text(name, map)?,
            "headers" => self.headers = read_value(name, map)?,
            "attributes" => self.attributes = read_value(name, map)?,
            "cost" => self.cost = read_value(name, map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the names of the fields that have a value.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("rule_set", self.rule_set.is_some()),
            ("ip", self.ip.is_some()),
            ("user", self.user.is_some()),
            ("api_key", self.api_key.is_some()),
            ("method", self.method.is_some()),
            ("path", self.path.is_some()),
            ("headers", self.headers.is_some()),
            ("attributes", self.attributes.is_some()),
            ("cost", self.cost.is_some()),
        ]
        .into_iter()
        .filter(|(_, is_given)| *is_given);
        given.map(|(name, _)| name)
    }

    /// Returns the request that the fields describe.
    ///
    /// # Errors
    /// If the address or the cost is malformed, or if a header or an attribute
    /// appears twice.
    pub fn into_context(self) -> Result<RequestContext<'a>, FieldError> {
        let ip = self.ip.map(|ip| {
            let address = ip.parse::<IpAddr>();
            address.map_err(|_| FieldError(format!("`ip` must be an IP address, found {ip:?}")))
        });
        let cost = self.cost.map(|cost| {
            let error = || FieldError("`cost` must be a whole number from 0".into());
            whole_number(cost.get()).ok_or_else(error)
        });
        let mut context = RequestContextBuilder::from(RequestFields {
            ip: ip.transpose()?,
            user: self.user,
            api_key: self.api_key,
            method: self.method,
            path: self.path,
            cost: cost.transpose()?,
        });
        if let Some(Texts(headers)) = self.headers {
            context = context.headers(unique(headers, Names::Headers)?);
        }
        if let Some(Texts(attributes)) = self.attributes {
            context = context.attributes(unique(attributes, Names::Attributes)?);
        }
        Ok(context.build())
    }
}

/// Returns the names of several lists in one array, which must have room for exactly all of them.
pub const fn concat_names<const N: usize>(lists: &[&[&'static str]]) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut list, mut count) = (0, 0);
    while list < lists.len() {
        let mut index = 0;
        while index < lists[list].len() {
            names[count] = lists[list][index];
            (index, count) = (index + 1, count + 1);
        }
        list += 1;
    }
    assert!(
        count == N,
        "the array has another length than the lists together"
    );
    names
}

fn read_text<'a, M: MapAccess<'a>>(
    name: &str,
    map: &mut M,
) -> Result<Option<Cow<'a, str>>, M::Error> {
    Ok(read_value::<Text<'a>, M>(name, map)?.map(|text| text.0))
}

/// Reads the value of the field of this name, which may stand only once and may be
/// null.
///
/// # Errors
/// If the field was read before, or if its value has the wrong type.
pub fn read_once<'a, T: de::Deserialize<'a>, M: MapAccess<'a>>(
    name: &'static str,
    field: &mut Option<Option<T>>,
    map: &mut M,
) -> Result<(), M::Error> {
    if field.is_some() {
        return Err(de::Error::duplicate_field(name));
    }
    *field = Some(read_value(name, map)?);
    Ok(())
}

/// Reads the value of the field of this name, which may be null.
///
/// # Errors
/// If the value has the wrong type; the error names the field.
pub fn read_value<'a, T: de::Deserialize<'a>, M: MapAccess<'a>>(
    name: &str,
    map: &mut M,
) -> Result<Option<T>, M::Error> {
    let value = map.next_value::<Option<T>>();
    value.map_err(|error| de::Error::custom(format_args!("`{name}`: {}", without_position(&error))))
}

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

/// Appends JSON to bytes.
#[derive(Debug)]
pub struct JsonWriter<'a>(pub &'a mut Vec<u8>);

impl JsonWriter<'_> {
    /// Appends the fields of a decision from `allowed` to `remaining`.
    ///
    /// Ids consist of letters, digits, `_`, `-` and `.`, so they need no escapes.
    pub fn decision_fields(&mut self, decision: &Decision) {
        self.text(if decision.allowed() {
            "\"allowed\":true,\"outcome\":\""
        } else {
            "\"allowed\":false,\"outcome\":\""
        });
        self.text(decision.outcome().name());
        self.text("\",\"rule\":");
        self.string_or_null(decision.rule().map(ActiveRule::id));
        self.text(",\"band\":");
        self.string_or_null(decision.band().map(Band::id));
        self.text(",\"limit\":");
        self.number_or_null(decision.limit());
        self.text(",\"remaining\":");
        self.number_or_null(decision.remaining());
    }

    /// Appends the fields of a decision as `POST /v1/check` answers them: those above, times in
    /// milliseconds, the bands that refused, the hold and the reservation.
    pub fn check_fields(&mut self, decision: &Decision) {
        self.decision_fields(decision);
        self.text(",\"retry_after_ms\":");
        self.number_or_null(decision.retry().after().map(Micros::ceil_millis));
        self.text(",\"reset_after_ms\":");
        self.number(decision.reset_micros().ceil_millis());
        self.text(",\"delay_ms\":");
        self.number(decision.delay_micros().ceil_millis());
        self.text(",\"violated\":");
        self.violated(decision);
        if let Some(hold) = decision.hold() {
            self.hold(hold, decision.renew_within());
        }
        if let Some(reservation) = decision.reservation() {
            self.text(",\"reservation\":\"");
            self.text(&reservation.to_string());
            self.text("\"");
        }
    }

    /// Appends the id of a hold, and how soon it must be renewed.
    pub fn hold(&mut self, hold: HoldId, renew_within: Micros) {
        self.text(",\"hold\":\"");
        self.text(&hold.to_string());
        self.text("\",\"hold_ms\":");
        self.number(renew_within.get() / 1_000);
    }

    /// Appends the list of bands that refused.
    pub fn violated(&mut self, decision: &Decision) {
        self.text("[");
        for (index, violation) in decision.violated().enumerate() {
            self.text(if index > 0 { ",\"" } else { "\"" });
            // Writing to memory does not fail.
            let _ = write!(self.0, "{violation}");
            self.text("\"");
        }
        self.text("]");
    }

    /// Appends text that is JSON already.
    pub fn text(&mut self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    /// Appends a number.
    pub fn number(&mut self, number: u64) {
        self.text(itoa::Buffer::new().format(number));
    }

    /// Appends a number, or `null`.
    pub fn number_or_null(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.text("null"),
        }
    }

    /// Appends a string that needs no escapes, or `null`.
    fn string_or_null(&mut self, text: Option<&str>) {
        match text {
            Some(text) => {
                self.text("\"");
                self.text(text);
                self.text("\"");
            }
            None => self.text("null"),
        }
    }
}

/// Returns a text as a JSON string without control characters, which a terminal
/// would obey.
pub fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    // JSON escapes only the first 32 control characters.
    if !json.contains(char::is_control) {
        return json;
    }
    let escaped = json.chars().map(|char| {
        if char.is_control() {
            format!("\\u{:04x}", u32::from(char))
        } else {
            char.to_string()
        }
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_quoted_text_has_no_control_characters() {
        let text: String = (0..0x200).filter_map(char::from_u32).collect();
        let json = quoted(&text);
        assert!(!json.contains(char::is_control), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
