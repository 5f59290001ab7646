//! What conditions compare of one request, computed at most once.

use std::cell::OnceCell;

use sha2::{Digest as _, Sha256};

use super::lists::{Field, ListIndex, ListNumbers};
use crate::context::RequestContext;

/// A request, with facts that are derived from it only if a rule needs them.
pub(super) struct RequestFacts<'r, 'c> {
    pub(super) context: &'r RequestContext<'c>,
    lists: &'r ListIndex,
    api_key_hash: OnceCell<[u8; 32]>,
    ip_lists: OnceCell<ListNumbers>,
}

impl<'r, 'c> RequestFacts<'r, 'c> {
    #[inline]
    pub(super) fn new(context: &'r RequestContext<'c>, lists: &'r ListIndex) -> Self {
        Self {
            context,
            lists,
            api_key_hash: OnceCell::new(),
            ip_lists: OnceCell::new(),
        }
    }

    /// Returns the value of a field, if the request has it.
    pub(super) fn value_of(&self, field: &Field) -> Option<&[u8]> {
        let context = self.context;
        match field {
            Field::Method => context.method().map(str::as_bytes),
            Field::Header(name) => context.header(name).map(str::as_bytes),
            Field::Attribute(name) => context.attribute_bytes(name),
            Field::User => context.user().map(str::as_bytes),
            Field::ApiKey => context.api_key().map(str::as_bytes),
            Field::ApiKeyHash => {
                let key = context.api_key()?;
                Some(
                    self.api_key_hash
                        .get_or_init(|| Sha256::digest(key.as_bytes()).into()),
                )
            }
        }
    }

    /// Returns the lists that contain the value of a field.
    pub(super) fn lists_of(&self, field: &Field) -> &[u32] {
        let value = self.value_of(field);
        value.map_or(&[], |value| self.lists.containing(field, value))
    }

    /// Returns the lists that contain the client's address.
    pub(super) fn ip_lists(&self) -> &[u32] {
        self.ip_lists.get_or_init(|| match self.context.ip {
            Some(ip) => self.lists.containing_ip(ip),
            None => ListNumbers::new(),
        })
    }
}
