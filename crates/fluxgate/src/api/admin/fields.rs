//! What a refund, a reset or a look at state is about.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Problem;
use crate::api::identity::Identity;
use crate::api::query;
use crate::request_json::{value, whole_number};

/// The fields of a body.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    rule_set: Option<String>,
    rule: Option<String>,
    pub(super) identity: Option<Identity<'a>>,
    units: Option<&'a RawValue>,
}

/// The same without a number of units.
#[derive(Debug)]
pub(super) struct WithoutUnits<'a>(pub(super) Fields<'a>);

impl Fields<'_> {
    pub(super) fn rule_set(&self) -> Result<&str, Problem> {
        required(self.rule_set.as_deref(), "rule_set")
    }

    pub(super) fn rule(&self) -> Result<&str, Problem> {
        required(self.rule.as_deref(), "rule")
    }

    pub(super) fn units(&self) -> Result<u64, Problem> {
        let units = required(self.units, "units")?;
        let units = whole_number(units.get()).filter(|units| *units > 0);
        units.ok_or_else(|| Problem::bad("`units` must be a whole number from 1"))
    }

    /// What a query says: `identity` once for each part.
    pub(super) fn from_query(query: &str) -> Result<Self, Problem> {
        let mut fields = Self::default();
        let mut identity = Vec::new();
        for field in query::fields(query) {
            let (name, value) = field?;
            let field = match &*name {
                "rule_set" => &mut fields.rule_set,
                "rule" => &mut fields.rule,
                "identity" => {
                    identity.push(value);
                    continue;
                }
                name => {
                    return Err(Problem::bad(format!(
                        "unknown field `{name}`; allowed are rule_set, rule, identity"
                    )));
                }
            };
            if field.replace(value).is_some() {
                return Err(Problem::bad(format!("`{name}` stands twice")));
            }
        }
        fields.identity = (!identity.is_empty()).then(|| Identity::new(identity));
        Ok(fields)
    }
}

fn required<T>(field: Option<T>, name: &str) -> Result<T, Problem> {
    field.ok_or_else(|| Problem::bad(format!("`{name}` is missing")))
}

const NAMES: &[&str] = &["rule_set", "rule", "identity", "units"];

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor(NAMES))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for WithoutUnits<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = deserializer.deserialize_map(FieldsVisitor(&NAMES[..3]))?;
        Ok(Self(fields))
    }
}

/// Takes these fields only.
struct FieldsVisitor(&'static [&'static str]);

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields<'de>, M::Error> {
        let mut fields = Fields::default();
        let mut seen = [false; NAMES.len()];
        while let Some(name) = map.next_key::<String>()? {
            let place = self.0.iter().position(|known| *known == name);
            let Some(place) = place else {
                return Err(de::Error::unknown_field(&name, self.0));
            };
            if std::mem::replace(&mut seen[place], true) {
                return Err(de::Error::duplicate_field(NAMES[place]));
            }
            match place {
                0 => fields.rule_set = value(&name, &mut map)?,
                1 => fields.rule = value(&name, &mut map)?,
                2 => fields.identity = value(&name, &mut map)?,
                _ => fields.units = value(&name, &mut map)?,
            }
        }
        Ok(fields)
    }
}
