//! The identity of a row of denials, as the record keeps it.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use fluxgate_core::StoredIdentity;

/// The beginning of the id of an identity that is too long to be kept.
const LONG: char = '~';

/// The identity of a row, as the record keeps it: in the form in which the store keeps its state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DeniedId {
    /// No rule decided, or a part of the key was missing.
    None,
    Stored(StoredIdentity),
    /// The hash of an identity that is too long to be kept.
    Long([u8; 16]),
}

impl DeniedId {
    /// Returns the text in the record.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Stored(identity) => BASE64_URL_SAFE_NO_PAD.encode(identity.to_bytes()),
            Self::Long(hash) => format!("{LONG}{}", BASE64_URL_SAFE_NO_PAD.encode(hash)),
        }
    }

    /// Reads a text in the record; `None` if another version has written it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::None);
        }
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        match text.strip_prefix(LONG) {
            Some(hash) => Some(Self::Long(decode(hash)?.try_into().ok()?)),
            None => StoredIdentity::from_bytes(&decode(text)?).map(Self::Stored),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        let identity = StoredIdentity::from_bytes(b"\0u\x03\0\0\0\0ann").unwrap();
        for id in [
            DeniedId::None,
            DeniedId::Stored(identity),
            DeniedId::Long([0xfe; 16]),
        ] {
            assert_eq!(DeniedId::parse(&id.to_text()), Some(id));
        }
        for bad in ["~", "~AA", "AB!", "_w"] {
            assert_eq!(DeniedId::parse(bad), None, "{bad}");
        }
    }
}
