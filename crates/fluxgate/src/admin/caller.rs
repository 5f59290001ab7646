//! The caller of an admin endpoint.

use fluxgate_http::Problem;
use http::StatusCode;

use super::tokens::{Role, Token};

/// The caller of an admin endpoint, as named in the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The name of the token, or `loopback`.
    pub(crate) name: String,
    pub(crate) role: Role,
}

impl Caller {
    /// Returns the caller with this token, if its role suffices.
    pub(super) fn with_role(token: &Token, role: Role) -> Result<Self, Problem> {
        if token.role < role {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!(
                    "this needs the role {}; `{}` has the role {}",
                    role.name(),
                    token.name,
                    token.role.name()
                ),
            ));
        }
        Ok(Self {
            name: token.name.clone(),
            role: token.role,
        })
    }
}
