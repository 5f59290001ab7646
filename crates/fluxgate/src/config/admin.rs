//! Access to the admin API.

use std::path::PathBuf;

use fluxgate_core::yaml::{Faults, Node};

use super::listen::Listen;
use super::read::Section;
use super::tree;

/// Access to the admin API. Without tokens, it is served only on loopback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// A file with a line `name:role:sha256` for each token.
    pub tokens_file: Option<PathBuf>,
    /// States that access without tokens is intended. Allowed only on loopback.
    pub open: bool,
    /// Whether the last requests are kept, to try changed rules on.
    pub record: bool,
}

impl Admin {
    pub(super) fn read(node: Option<&Node>, listen: &Listen, faults: &mut Faults) -> Self {
        const FIELDS: &[&str] = &["tokens_file", "open", "record"];
        let section = Section::read(node, "`admin`", FIELDS, faults);
        let open = section.boolean("open", false, faults);
        if let Some(node) = section.get("open").filter(|_| open) {
            if section.get("tokens_file").is_some() {
                faults.add(
                    node.position,
                    "`open: true` and `tokens_file` exclude each other",
                );
            }
            let api = listen.api.as_ref().map(|api| api.address);
            if let Some(api) = api.filter(|api| !is_loopback(api)) {
                faults.add(
                    node.position,
                    format!(
                        "`open: true` is allowed only where the API listens on loopback; \
                         `listen.api` is {api}"
                    ),
                );
            }
        }
        Self {
            tokens_file: section.path("tokens_file", faults),
            open,
            record: section.boolean("record", false, faults),
        }
    }

    pub(super) fn node(&self) -> Node {
        let tokens = self.tokens_file.as_deref();
        tree::map([
            ("tokens_file", tokens.map(tree::path)),
            ("open", Some(tree::plain(self.open))),
            ("record", Some(tree::plain(self.record))),
        ])
    }
}

fn is_loopback(address: &std::net::SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
