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
