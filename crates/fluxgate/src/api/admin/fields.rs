//! The fields of refund, reset and state calls, and the limit that they refer to.

use std::borrow::Cow;
use std::fmt;

use fluxgate_core::json::{read_value, whole_number};
use fluxgate_core::{AdHocKey, Band, IdentityRef, StoredIdentity};
use fluxgate_http::Problem;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::admin::AuditedChange;
use crate::api::body::missing;
use crate::api::consume::FieldNames;
use crate::api::identity::{Identity, open_handle, refuse_shown};
use crate::api::query;
use crate::engine::ThrottleParameters;
use crate::identities::{HandleTarget, Identities};

/// The fields of a body or of a query.
#[derive(Debug, Default)]
pub(super) struct AdminFields<'a> {
    identity: Option<Identity<'a>>,
    /// Texts, in the order of [`TEXTS`].
    texts: [Option<String>; TEXTS.len()],
    /// Numbers as written, in the order of [`NUMBERS`].
    numbers: [Option<Cow<'a, str>>; NUMBERS.len()],
}

const TEXTS: [&str; 5] = ["rule_set", "rule", "rule_id", "key", "handle"];
/// The parameters of a limit of `/v1/consume`.
const RATE: [&str; 2] = ["capacity", "refill_tokens_per_second"];
const NUMBERS: [&str; 6] = [
    "capacity",
    "refill_tokens_per_second",
    "max_burst",
    "count",
    "period",
    "units",
];

/// The fields of a refund, which are all fields.
const NAMES: &[&str] = &[
    "rule_set",
    "rule",
    "identity",
    "handle",
    "rule_id",
    "capacity",
    "refill_tokens_per_second",
    "key",
    "max_burst",
    "count",
    "period",
    "units",
];
/// The fields of a reset.
const NAMES_WITHOUT_UNITS: &[&str] = NAMES.split_at(NAMES.len() - 1).0;

/// The fields of a call without `units`.
#[derive(Debug)]
pub(super) struct ResetFields<'a>(pub(super) AdminFields<'a>);

/// The limit that the fields refer to.
#[derive(Debug)]
pub(super) enum Target<'a> {
    /// A configured rule.
    Rule {
        rule_set: Cow<'a, str>,
        rule: Cow<'a, str>,
        identity: Option<TargetIdentity<'a>>,
    },
    /// All rules of a set.
    Set(&'a str),
    /// A limit that comes with the call.
    Call(Box<CallLimit<'a>>),
}

/// The identity of a configured rule.
#[derive(Debug)]
pub(super) enum TargetIdentity<'a> {
    /// The values of the rule's key.
    Values(Vec<&'a str>),
    /// That of a handle.
    Stored(StoredIdentity),
}

impl TargetIdentity<'_> {
    /// Returns it for the limiter.
    pub(super) fn as_ref(&self) -> IdentityRef<'_> {
        match self {
            Self::Values(values) => IdentityRef::Values(values),
            Self::Stored(identity) => IdentityRef::Stored(identity),
        }
    }
}

impl Target<'_> {
    /// Returns the identity of a configured rule, if there is one.
    pub(super) fn identity(&self) -> Option<IdentityRef<'_>> {
        match self {
            Self::Rule { identity, .. } => identity.as_ref().map(TargetIdentity::as_ref),
            _ => None,
        }
    }

    /// Returns the audited change of it, still without what is changed.
    pub(super) fn change(&self) -> AuditedChange<'_> {
        let mut change = AuditedChange::default();
        match self {
            Self::Set(rule_set) => change.rule_set = rule_set,
            Self::Rule { rule_set, rule, .. } => {
                change.rule_set = rule_set;
                change.rule = Some(rule);
            }
            Self::Call(limit) => change.rule_id = limit.rule_id.as_deref(),
        }
        change
    }
}

/// A limit that comes with the call.
#[derive(Debug)]
pub(super) struct CallLimit<'a> {
    /// The name; `None` for a key of `CL.THROTTLE`.
    pub(super) rule_id: Option<Cow<'a, str>>,
    pub(super) key: AdHocKey,
    /// The parameters, if given.
    band: Option<Band>,
}

impl CallLimit<'_> {
    /// Returns the parameters, or an error if they are missing.
    pub(super) fn band(&self) -> Result<&Band, Problem> {
        self.band.as_ref().ok_or_else(|| {
            Problem::bad_request(match &self.rule_id {
                Some(_) => "`capacity` and `refill_tokens_per_second` are missing",
                None => "`max_burst`, `count` and `period` are missing",
            })
        })
    }

    /// Returns a band for a reset, which does not depend on the parameters.
    pub(super) fn band_for_reset(&self) -> Result<Band, Problem> {
        match (&self.band, &self.rule_id) {
            (Some(band), _) => Ok(band.clone()),
            (None, Some(_)) => FieldNames::SNAKE_CASE.band("1", "1"),
            (None, None) => {
                let numbers = ThrottleParameters {
                    max_burst: 0,
                    count: 1,
                    period: 1,
                };
                numbers.band().map_err(Problem::bad_request)
            }
        }
    }
}

impl AdminFields<'_> {
    /// Returns the limit that the fields refer to. Refuses fields that cannot be combined.
    pub(super) fn target(&self, identities: &Identities) -> Result<Target<'_>, Problem> {
        if let Some(handle) = self.text("handle") {
            return self.handle_target(open_handle(identities, handle)?);
        }
        for value in self.identity.iter().flat_map(Identity::values) {
            refuse_shown("identity", value)?;
        }
        if self.text("key").is_some() {
            self.allow_only("key", &["max_burst", "count", "period"])?;
            return Ok(Target::Call(Box::new(self.throttle_key()?)));
        }
        if let Some(rule_id) = self.text("rule_id") {
            self.allow_only("rule_id", &["identity", RATE[0], RATE[1]])?;
            return self.rule_id_target(rule_id);
        }
        self.allow_only("rule_set", &["rule", "identity"])?;
        let rule_set = self.required_text("rule_set")?;
        let identity = self.identity.as_ref().map(Identity::values);
        match self.text("rule") {
            Some(rule) => Ok(Target::Rule {
                rule_set: rule_set.into(),
                rule: rule.into(),
                identity: identity.map(TargetIdentity::Values),
            }),
            None if identity.is_some() => Err(missing("rule")),
            None => Ok(Target::Set(rule_set)),
        }
    }

    /// Returns the limit of a handle. The call may name its rule, too.
    fn handle_target(&self, handle: HandleTarget) -> Result<Target<'_>, Problem> {
        let HandleTarget {
            rule_set,
            rule,
            identity,
        } = handle;
        if rule_set.is_empty() {
            let band = if rule.is_empty() {
                self.allow_only("handle", &["max_burst", "count", "period"])?;
                self.throttle_band()?
            } else {
                self.allow_only("handle", &RATE)?;
                self.rate_band()?
            };
            return Ok(Target::Call(Box::new(CallLimit {
                key: AdHocKey::stored(&rule, &identity),
                rule_id: Some(rule).filter(|name| !name.is_empty()).map(Cow::Owned),
                band,
            })));
        }
        self.allow_only("handle", &["rule_set", "rule"])?;
        for (field, of_handle) in [("rule_set", &rule_set), ("rule", &rule)] {
            if self.text(field).is_some_and(|given| given != of_handle) {
                return Err(Problem::bad_request(format!(
                    "`{field}`: the handle belongs to rule `{rule}` of rule set `{rule_set}`"
                )));
            }
        }
        Ok(Target::Rule {
            rule_set: rule_set.into(),
            rule: rule.into(),
            identity: Some(TargetIdentity::Stored(identity)),
        })
    }

    /// Returns the limit with this `rule_id`: a configured rule, as in `/v1/consume`, if the
    /// parameters are missing and it has the form `SET/RULE`; otherwise a limit that comes
    /// with the call.
    fn rule_id_target<'f>(&'f self, rule_id: &'f str) -> Result<Target<'f>, Problem> {
        let identity = self.identity.as_ref().map(Identity::values);
        let band = self.rate_band()?;
        if band.is_none() && rule_id.contains('/') {
            let (rule_set, rule) = FieldNames::SNAKE_CASE.split_rule_id(rule_id)?;
            return Ok(Target::Rule {
                rule_set: rule_set.into(),
                rule: rule.into(),
                identity: identity.map(TargetIdentity::Values),
            });
        }
        Ok(Target::Call(Box::new(CallLimit {
            rule_id: Some(rule_id.into()),
            key: FieldNames::SNAKE_CASE.ad_hoc_key(rule_id, &identity.unwrap_or_default())?,
            band,
        })))
    }

    /// Returns the bucket of a call to `/v1/consume`, if its parameters are given.
    fn rate_band(&self) -> Result<Option<Band>, Problem> {
        match RATE.map(|name| self.number(name)) {
            [Some(capacity), Some(rate)] => FieldNames::SNAKE_CASE.band(capacity, rate).map(Some),
            [None, Some(_)] => Err(missing(RATE[0])),
            [Some(_), None] => Err(missing(RATE[1])),
            [None, None] => Ok(None),
        }
    }

    /// Returns the limit of a key of `CL.THROTTLE`.
    fn throttle_key(&self) -> Result<CallLimit<'_>, Problem> {
        let key = self.required_text("key")?;
        Ok(CallLimit {
            rule_id: None,
            key: AdHocKey::key(key.as_bytes()),
            band: self.throttle_band()?,
        })
    }

    /// Returns the bucket of a `CL.THROTTLE`, if its parameters are given.
    fn throttle_band(&self) -> Result<Option<Band>, Problem> {
        let number = |name| {
            let given = self.number(name).ok_or_else(|| missing(name))?;
            let parsed = given.parse().ok();
            parsed.ok_or_else(|| Problem::bad_request(format!("`{name}` must be a whole number")))
        };
        let names = ["max_burst", "count", "period"];
        let mut band = None;
        if names.iter().any(|name| self.number(name).is_some()) {
            let numbers = ThrottleParameters {
                max_burst: number("max_burst")?,
                count: number("count")?,
                period: number("period")?,
            };
            band = Some(numbers.band().map_err(Problem::bad_request)?);
        }
        Ok(band)
    }

    pub(super) fn units(&self) -> Result<u64, Problem> {
        let units = self.number("units").ok_or_else(|| missing("units"))?;
        let units = whole_number(units).filter(|units| *units > 0);
        units.ok_or_else(|| Problem::bad_request("`units` must be a whole number of at least 1"))
    }

    fn text(&self, name: &str) -> Option<&str> {
        let place = TEXTS.iter().position(|known| *known == name)?;
        self.texts[place].as_deref()
    }

    fn required_text(&self, name: &str) -> Result<&str, Problem> {
        self.text(name).ok_or_else(|| missing(name))
    }

    fn number(&self, name: &str) -> Option<&str> {
        let place = NUMBERS.iter().position(|known| *known == name)?;
        self.numbers[place].as_deref()
    }

    /// Refuses fields that cannot be combined with the field `name`.
    fn allow_only(&self, name: &str, others: &[&str]) -> Result<(), Problem> {
        let is_given = |field: &str| match field {
            "identity" => self.identity.is_some(),
            _ => self.text(field).is_some() || self.number(field).is_some(),
        };
        let mut given = NAMES_WITHOUT_UNITS.iter().filter(|field| is_given(field));
        match given.find(|field| **field != name && !others.contains(field)) {
            Some(other) => Err(Problem::bad_request(format!(
                "`{other}` cannot be combined with `{name}`"
            ))),
            None => Ok(()),
        }
    }

    /// Reads a query, which has `identity` once for each part.
    pub(super) fn from_query(query: &str) -> Result<Self, Problem> {
        let mut fields = Self::default();
        let mut identity = Vec::new();
        for field in query::fields(query) {
            let (name, value) = field?;
            let text = TEXTS.iter().position(|known| *known == name);
            let number = NUMBERS.iter().position(|known| *known == name);
            let is_twice = match (text, number) {
                _ if name == "identity" => {
                    identity.push(value);
                    continue;
                }
                (Some(place), _) => fields.texts[place].replace(value).is_some(),
                (None, Some(place)) if name != "units" => {
                    fields.numbers[place].replace(value.into()).is_some()
                }
                _ => {
                    let known = NAMES_WITHOUT_UNITS.join(", ");
                    return Err(Problem::bad_request(format!(
                        "unknown field `{name}`; allowed are {known}"
                    )));
                }
            };
            if is_twice {
                return Err(Problem::bad_request(format!("`{name}` appears twice")));
            }
        }
        fields.identity = (!identity.is_empty()).then(|| Identity::new(identity));
        Ok(fields)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for AdminFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor(NAMES))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ResetFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = deserializer.deserialize_map(FieldsVisitor(NAMES_WITHOUT_UNITS))?;
        Ok(Self(fields))
    }
}

/// Accepts only these fields.
struct FieldsVisitor(&'static [&'static str]);

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = AdminFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<AdminFields<'de>, M::Error> {
        let mut fields = AdminFields::default();
        let mut seen = [false; NAMES.len()];
        while let Some(name) = map.next_key::<String>()? {
            let place = self.0.iter().position(|known| *known == name);
            let Some(place) = place else {
                return Err(de::Error::unknown_field(&name, self.0));
            };
            if std::mem::replace(&mut seen[place], true) {
                return Err(de::Error::duplicate_field(NAMES[place]));
            }
            if let Some(place) = TEXTS.iter().position(|known| *known == name) {
                fields.texts[place] = read_value(&name, &mut map)?;
            } else if let Some(place) = NUMBERS.iter().position(|known| *known == name) {
                let number: Option<&RawValue> = read_value(&name, &mut map)?;
                fields.numbers[place] = number.map(|number| number.get().into());
            } else {
                fields.identity = read_value(&name, &mut map)?;
            }
        }
        Ok(fields)
    }
}
