//! An identity in JSON: one string, or a list of strings for a composite key.

use std::fmt;

use fluxgate_core::json::Text;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

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
