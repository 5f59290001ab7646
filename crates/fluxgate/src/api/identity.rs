//! An identity in JSON: one string, or a list of strings for a composite key.

use std::fmt;

use fluxgate_core::json::Text;
use fluxgate_http::Problem;
use http::StatusCode;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use crate::identities::{HandleError, HandleTarget, Identities, Pseudonyms};

/// The values of the parts of a key, in order.
#[derive(Debug, Default)]
pub(super) struct Identity<'a>(Vec<Text<'a>>);

impl Identity<'_> {
    pub(super) fn new(values: Vec<String>) -> Self {
        Self(values.into_iter().map(|value| Text(value.into())).collect())
    }

    pub(super) fn values(&self) -> Vec<&str> {
        self.0.iter().map(|text| &*text.0).collect()
    }
}

/// Returns what a handle refers to.
pub(super) fn open_handle(identities: &Identities, handle: &str) -> Result<HandleTarget, Problem> {
    identities.open(handle).map_err(|error| {
        let status = match error {
            HandleError::Malformed => StatusCode::BAD_REQUEST,
            HandleError::Foreign => StatusCode::NOT_FOUND,
            HandleError::NotReady => StatusCode::SERVICE_UNAVAILABLE,
        };
        Problem::new(status, format!("`handle`: {error}"))
    })
}

/// Refuses a text that responses show in place of a value: a pseudonym or the ends of an API key. It
/// would find another identity, which has used nothing.
pub(super) fn refuse_shown(field: &str, value: &str) -> Result<(), Problem> {
    let what = if Pseudonyms::is_pseudonym(value) {
        "a pseudonym"
    } else if is_shortened(value) {
        "only the ends of an API key"
    } else {
        return Ok(());
    };
    Err(Problem::bad_request(format!(
        "`{field}`: {value:?} is {what}, as responses show it, and finds no identity; use the `handle` \
         beside it, or the whole value"
    )))
}

/// Returns whether a text is what is shown of an API key.
fn is_shortened(value: &str) -> bool {
    let place = value.chars().position(|char| char == '…');
    match value.chars().count() {
        1 => place == Some(0),
        7 => place == Some(4),
        _ => false,
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Identity<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdentityVisitor;

        impl<'de> Visitor<'de> for IdentityVisitor {
            type Value = Identity<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an identity: a string or a list of strings")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Identity<'de>, E> {
                Ok(Identity(vec![Text(text.into())]))
            }

            fn visit_str<E>(self, text: &str) -> Result<Identity<'de>, E> {
                Ok(Identity(vec![Text(text.to_owned().into())]))
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Identity<'de>, S::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(Identity(values))
            }
        }

        deserializer.deserialize_any(IdentityVisitor)
    }
}
