//! The claims of a verified token that sources refer to.

#[cfg(feature = "jwt")]
use std::sync::Arc;

/// The verified claims of a request. A request without a valid token has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(#[cfg(feature = "jwt")] Option<Arc<[Claim]>>);

/// The name and the value of a claim.
#[cfg(feature = "jwt")]
type Claim = (Arc<str>, Box<str>);

#[cfg(feature = "jwt")]
impl Claims {
    /// Creates the claims of a verified token.
    pub(crate) fn new(claims: impl Iterator<Item = Claim>) -> Self {
        Self(Some(claims.collect()))
    }

    /// Returns the value of a claim, if the token has it.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut claims = self.0.as_deref().unwrap_or_default().iter();
        let found = claims.find(|(known, _)| **known == *name);
        found.map(|(_, value)| &**value)
    }
}
