//! A request in JSON, as `simulate` and the API read it.

mod text;

use std::borrow::Cow;
use std::net::IpAddr;

use fluxgate_core::RequestContext;
use serde::de::{self, MapAccess};
use serde_json::value::RawValue;

use crate::known::Known;
use text::Texts;
pub(crate) use text::{Names, Pairs, Text, unique, whole_number, without_place};

/// The fields that tell of a request. A null counts as absent.
#[derive(Default)]
pub(crate) struct ContextFields<'a> {
    pub(crate) rule_set: Option<Cow<'a, str>>,
    ip: Option<Cow<'a, str>>,
    user: Option<Cow<'a, str>>,
    api_key: Option<Cow<'a, str>>,
    method: Option<Cow<'a, str>>,
    path: Option<Cow<'a, str>>,
    headers: Option<Texts<'a>>,
    attributes: Option<Texts<'a>>,
    cost: Option<&'a RawValue>,
    /// Which fields were seen, a bit each.
    seen: u16,
}

impl<'a> ContextFields<'a> {
    /// Their names.
    pub(crate) const NAMES: [&'static str; 9] = [
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

    /// Reads the value of a field of this name. `false` if it is not among them;
    /// then nothing has been read.
    pub(crate) fn read<M: MapAccess<'a>>(
        &mut self,
        name: &str,
        map: &mut M,
    ) -> Result<bool, M::Error> {
        let Some(place) = Self::NAMES.iter().position(|known| *known == name) else {
            return Ok(false);
        };
        if self.seen & 1 << place != 0 {
            return Err(de::Error::duplicate_field(Self::NAMES[place]));
        }
        self.seen |= 1 << place;
        match place {
            0 => self.rule_set = text(name, map)?,
            1 => self.ip = text(name, map)?,
            2 => self.user = text(name, map)?,
            3 => self.api_key = text(name, map)?,
            4 => self.method = text(name, map)?,
            5 => self.path = text(name, map)?,
            6 => self.headers = value(name, map)?,
            7 => self.attributes = value(name, map)?,
            _ => self.cost = value(name, map)?,
        }
        Ok(true)
    }

    /// The request they tell of.
    pub(crate) fn into_context(self) -> Result<RequestContext<'a>, String> {
        let ip = self.ip.map(|ip| {
            let address = ip.parse::<IpAddr>();
            address.map_err(|_| format!("`ip` is no address: {ip:?}"))
        });
        let cost = self.cost.map(|cost| whole_number(cost.get()));
        let cost = cost.map(|cost| cost.ok_or("`cost` must be a whole number from 0"));
        let mut context = Known {
            ip: ip.transpose()?,
            user: self.user,
            api_key: self.api_key,
            method: self.method,
            path: self.path,
            cost: cost.transpose()?,
        }
        .builder();
        if let Some(headers) = self.headers {
            context = context.headers(headers.unique(Names::Headers)?);
        }
        if let Some(attributes) = self.attributes {
            context = context.attributes(attributes.unique(Names::Attributes)?);
        }
        Ok(context.build())
    }
}

/// A string, or null.
fn text<'a, M: MapAccess<'a>>(name: &str, map: &mut M) -> Result<Option<Cow<'a, str>>, M::Error> {
    Ok(value::<Text<'a>, M>(name, map)?.map(|text| text.0))
}

/// Reads the field of this name, which may stand once, or be null.
pub(crate) fn once<'a, T: de::Deserialize<'a>, M: MapAccess<'a>>(
    name: &'static str,
    field: &mut Option<Option<T>>,
    map: &mut M,
) -> Result<(), M::Error> {
    if field.is_some() {
        return Err(de::Error::duplicate_field(name));
    }
    *field = Some(value(name, map)?);
    Ok(())
}

/// The value of the field of this name, or null.
pub(crate) fn value<'a, T: de::Deserialize<'a>, M: MapAccess<'a>>(
    name: &str,
    map: &mut M,
) -> Result<Option<T>, M::Error> {
    let value = map.next_value::<Option<T>>();
    value.map_err(|error| de::Error::custom(format_args!("`{name}`: {}", without_place(&error))))
}
