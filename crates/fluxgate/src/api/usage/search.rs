//! Which identities a list is about.

use std::sync::Arc;

use fluxgate_core::StoredIdentity;
use fluxgate_http::Problem;

use crate::identities::{Identities, IdentityFilter};

/// What an identity must have to be listed.
pub(super) struct Search {
    identities: Arc<Identities>,
    /// `None` if any parts will do.
    filter: Option<IdentityFilter>,
    /// In lower case.
    text: Option<String>,
}

impl Search {
    /// Reads `PART=VALUE` texts, and a text that is shown of it.
    pub(super) fn new(
        parts: &[String],
        text: Option<&str>,
        identities: &Arc<Identities>,
    ) -> Result<Self, Problem> {
        let filter = identities.filter(parts);
        let filter =
            filter.map_err(|error| Problem::bad_request(format!("`identity`: {error}")))?;
        Ok(Self {
            identities: Arc::clone(identities),
            filter: (!parts.is_empty()).then_some(filter),
            text: text.map(str::to_lowercase),
        })
    }

    /// Returns whether every identity is found.
    pub(super) fn finds_all(&self) -> bool {
        self.filter.is_none() && self.text.is_none()
    }

    pub(super) fn finds(&self, identity: &StoredIdentity) -> bool {
        let identities = &self.identities;
        let has_parts = |filter| identities.matches(filter, identity);
        self.filter.as_ref().is_none_or(has_parts)
            && self
                .text
                .as_ref()
                .is_none_or(|text| identities.is_shown_with(identity, text))
    }
}
