//! Why a request is answered with 400.

use std::fmt;

use fluxgate_core::PathError;

/// Why a request is answered with 400: servers could read it in more ways than one, so that
/// another request would be counted than the one that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadRequest {
    /// Its path has too many readings.
    Path(PathError),
    /// A header by which it is counted is given twice, with different values.
    ConflictingValues,
    /// A header differs only by `_` for `-` from one by which it is counted, and cannot be
    /// kept from whoever serves it.
    UnderscoreVariant,
}

impl BadRequest {
    /// The reason, as it is told to a client.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Path(error) => error.reason(),
            Self::ConflictingValues => {
                "a header by which it is counted is given twice, and differs"
            }
            Self::UnderscoreVariant => {
                "a header differs only by `_` for `-` from one that is counted"
            }
        }
    }
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for BadRequest {}

impl From<PathError> for BadRequest {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}
