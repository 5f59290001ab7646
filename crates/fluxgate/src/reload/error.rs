//! Why the content of a source is refused.

use std::fmt;

use crate::failure::{Exit, Failure};

/// Why the content of a source is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReloadError {
    /// The source cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The server did not answer, or answered with an error.
    #[error("{0}")]
    NoAnswer(String),
    /// The content is invalid; one line a fault.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

impl ReloadError {
    /// Returns one line a fault.
    pub(super) fn faults(&self) -> &[String] {
        match self {
            Self::Unreadable(why) | Self::NoAnswer(why) => std::slice::from_ref(why),
            Self::Invalid(faults) => faults,
        }
    }

    /// Returns whether both have the same cause. The text of a failed call differs from
    /// call to call.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::NoAnswer(_), Self::NoAnswer(_))) || self == other
    }
}

impl From<ReloadError> for Failure {
    fn from(error: ReloadError) -> Self {
        let exit = match error {
            ReloadError::Unreadable(_) | ReloadError::NoAnswer(_) => Exit::NoInput,
            ReloadError::Invalid(_) => Exit::Config,
        };
        Self::new(exit, error)
    }
}

/// Splits an error whose text has one line a fault.
pub(super) fn invalid(error: &impl fmt::Display) -> ReloadError {
    ReloadError::Invalid(error.to_string().lines().map(str::to_owned).collect())
}
