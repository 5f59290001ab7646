//! Finds identities by the values of their parts, in the clear or hashed.

use fluxgate_core::KeyPart;
use fluxgate_core::key::{IdentityPart, PartHash, encoded_identity, parts_of};

use super::pseudonyms::Pseudonyms;

/// The parts that an identity must have.
#[derive(Clone, Debug)]
pub(crate) struct IdentityFilter(Vec<WantedPart>);

/// A text that is not `PART=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdentityFilterError {
    #[error("`{0}` is not PART=VALUE, such as user=ann, api_key=KEY or header:X-Tenant=acme")]
    Form(String),
    #[error("`{text}`: {error}")]
    Part {
        text: String,
        error: fluxgate_core::KeyPartError,
    },
    #[error("`{text}`: {error}")]
    Value {
        text: String,
        error: fluxgate_core::IdentityError,
    },
}

#[derive(Clone, Debug)]
struct WantedPart {
    kind: u8,
    name: Vec<u8>,
    value: Vec<u8>,
    /// The hash that the store keeps in its place, if it does.
    hash: Option<PartHash>,
    /// The value itself, if it has the form of a pseudonym.
    pseudonym: Option<String>,
}

impl IdentityFilter {
    /// Reads `PART=VALUE` texts, the parts as rules name them, or `key` for the keys of limits that
    /// come with the call. An identity must have all of them. A value may also be the pseudonym that
    /// responses show in its place. `hash` returns the hash that the store keeps of a part.
    pub(super) fn parse<T: AsRef<str>>(
        texts: &[T],
        ipv6_prefix: u8,
        hash: impl Fn(&IdentityPart<'_>) -> Option<PartHash>,
    ) -> Result<Self, IdentityFilterError> {
        let parts = texts.iter().map(|text| {
            let mut part = WantedPart::parse(text.as_ref(), ipv6_prefix)?;
            part.hash = hash(&part.as_part());
            Ok(part)
        });
        Ok(Self(parts.collect::<Result<_, _>>()?))
    }

    /// Returns whether an encoded identity has all parts. `pseudonym` returns the pseudonym of a part.
    pub(super) fn matches(
        &self,
        identity: &[u8],
        pseudonym: impl Fn(&IdentityPart<'_>) -> String,
    ) -> bool {
        let has = |wanted: &WantedPart| parts_of(identity).any(|part| wanted.is(&part, &pseudonym));
        self.0.iter().all(has)
    }
}

impl WantedPart {
    fn parse(text: &str, ipv6_prefix: u8) -> Result<Self, IdentityFilterError> {
        let form = || IdentityFilterError::Form(text.into());
        let (name, value) = text.split_once('=').ok_or_else(form)?;
        let pseudonym = Pseudonyms::is_pseudonym(value).then(|| value.to_owned());
        if name == "key" {
            return Ok(Self::new(
                &IdentityPart::of_call(value.as_bytes()),
                pseudonym,
            ));
        }
        let part: KeyPart = name.parse().map_err(|error| IdentityFilterError::Part {
            text: text.into(),
            error,
        })?;
        // As rules have them.
        let part = match part {
            KeyPart::Header(name) if name.is_empty() => return Err(form()),
            KeyPart::Header(name) => KeyPart::Header(name.to_ascii_lowercase().into()),
            part => part,
        };
        // Pseudonyms of addresses are no addresses.
        let sample = match (&part, &pseudonym) {
            (KeyPart::Ip, Some(_)) => "0.0.0.0",
            _ => value,
        };
        let encoded = encoded_identity(&[part], &[sample], ipv6_prefix);
        let encoded = encoded.map_err(|error| IdentityFilterError::Value {
            text: text.into(),
            error,
        })?;
        let part = parts_of(&encoded).next().ok_or_else(form)?;
        Ok(Self::new(&part, pseudonym))
    }

    fn new(part: &IdentityPart<'_>, pseudonym: Option<String>) -> Self {
        Self {
            kind: part.kind,
            name: part.name.into(),
            value: part.value.into(),
            hash: None,
            pseudonym,
        }
    }

    fn as_part(&self) -> IdentityPart<'_> {
        IdentityPart {
            kind: self.kind,
            name: &self.name,
            value: &self.value,
        }
    }

    fn is(&self, part: &IdentityPart<'_>, pseudonym: impl Fn(&IdentityPart<'_>) -> String) -> bool {
        let kind = part.hashed_kind();
        let is_alike = match &self.pseudonym {
            Some(_) if is_address(self.kind) => is_address(kind),
            _ => kind == self.kind,
        };
        if !is_alike || part.name != self.name {
            return false;
        }
        let has_value = match part.hash() {
            Some(hash) => Some(hash) == self.hash.as_ref(),
            None => part.value == self.value,
        };
        let is_pseudonym = |name: &String| *name == pseudonym(part);
        has_value || self.pseudonym.as_ref().is_some_and(is_pseudonym)
    }
}

fn is_address(kind: u8) -> bool {
    let part = IdentityPart {
        kind,
        name: &[],
        value: &[],
    };
    part.is_address()
}
