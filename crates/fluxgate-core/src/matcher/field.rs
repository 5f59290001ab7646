//! The parts of a request that have a value, and the lists that they are compared with.

use std::fmt;

/// A part of a request that has a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Field {
    Method,
    /// The name is in lower case.
    Header(Box<str>),
    Attribute(Box<str>),
    User,
    ApiKey,
    /// The SHA-256 of the API key.
    ApiKeyHash,
}

/// Writes the field of a rule that the condition is in: `methods`, `headers.x-plan`.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("methods"),
            Self::Header(name) => write!(f, "headers.{name}"),
            Self::Attribute(name) => write!(f, "attributes.{name}"),
            Self::User => f.write_str("user"),
            Self::ApiKey | Self::ApiKeyHash => f.write_str("api_key"),
        }
    }
}

/// The number of a list in its rule set.
pub(crate) type ListNumber = u32;
