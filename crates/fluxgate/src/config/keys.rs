//! How identities are counted and stored.

use std::path::PathBuf;

use fluxgate_core::rules::{RuleOptions, values};
use fluxgate_core::yaml::{Faults, Node};
use fluxgate_redis::HashKeys;

use super::read::Section;
use super::tree;

/// How identities are counted and stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Which parts of identities are stored as a keyed hash.
    pub hash_keys: HashKeys,
    /// The file with the secret of that hash.
    pub hash_secret_file: Option<PathBuf>,
    /// How many leading bits of an IPv6 address identify a client: 1 to 128.
    pub ipv6_prefix: u8,
}

const HASH_KEYS: [(&str, HashKeys); 3] = [
    ("api_keys", HashKeys::ApiKeys),
    ("all", HashKeys::All),
    ("none", HashKeys::None),
];

impl Keys {
    pub(super) fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        const FIELDS: &[&str] = &["hash_keys", "hash_secret_file", "ipv6_prefix"];
        let section = Section::read(node, "`keys`", FIELDS, faults);
        let hash_keys = section.one_of("hash_keys", &HASH_KEYS, faults);
        let prefix = section
            .get("ipv6_prefix")
            .and_then(|node| values::ipv6_prefix(node, faults));
        Self {
            hash_keys: hash_keys.unwrap_or_default(),
            hash_secret_file: section.path("hash_secret_file", faults),
            ipv6_prefix: prefix.unwrap_or(RuleOptions::default().ipv6_prefix),
        }
    }

    pub(super) fn node(&self) -> Node {
        let secret = self.hash_secret_file.as_deref();
        tree::map([
            ("hash_keys", Some(tree::name_of(&HASH_KEYS, self.hash_keys))),
            ("hash_secret_file", secret.map(tree::path)),
            ("ipv6_prefix", Some(tree::plain(self.ipv6_prefix))),
        ])
    }
}
