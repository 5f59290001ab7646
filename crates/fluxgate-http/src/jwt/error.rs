//! Why tokens cannot be verified.

use crate::trust::TrustError;

/// Why tokens cannot be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtError {
    /// The address is not one such as `https://issuer.example/jwks.json`.
    #[error("`{0}` is not the address of a key set, such as https://issuer.example/jwks.json")]
    Address(String),
    /// The system has no certificate authorities to trust.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The keys cannot be read.
    #[error("{place}: {why}")]
    Keys {
        /// The file or address.
        place: String,
        /// Why they cannot be read.
        why: String,
    },
}
