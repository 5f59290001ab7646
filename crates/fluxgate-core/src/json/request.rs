//! The fields of a request, read from an object that may have others.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::de::{self, MapAccess};
use serde_json::value::RawValue;

use super::text::{FieldError, Names, Text, Texts, unique, whole_number, without_position};
use crate::context::{RequestContext, RequestContextBuilder, RequestFields};

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
        if self.seen & 1 << index != 0 {
            return Err(de::Error::duplicate_field(Self::NAMES[index]));
        }
        self.seen |= 1 << index;
        match index {
            0 => self.rule_set = read_text(name, map)?,
            1 => self.ip = read_text(name, map)?,
            2 => self.user = read_text(name, map)?,
            3 => self.api_key = read_text(name, map)?,
            4 => self.method = read_text(name, map)?,
            5 => self.path = read_text(name, map)?,
            6 => self.headers = read_value(name, map)?,
            7 => self.attributes = read_value(name, map)?,
            _ => self.cost = read_value(name, map)?,
        }
        Ok(true)
    }

    /// Returns the names of the fields that have a value.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let is_given = [
            self.rule_set.is_some(),
            self.ip.is_some(),
            self.user.is_some(),
            self.api_key.is_some(),
            self.method.is_some(),
            self.path.is_some(),
            self.headers.is_some(),
            self.attributes.is_some(),
            self.cost.is_some(),
        ];
        let names = Self::NAMES.into_iter().zip(is_given);
        names.filter_map(|(name, is_given)| is_given.then_some(name))
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
