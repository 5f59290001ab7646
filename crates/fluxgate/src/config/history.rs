//! The section `history`: how much is kept of what happened.

use std::time::Duration;

use fluxgate_core::yaml::{Node, Value};

use super::section::Section;
use super::tree;

const FIELDS: &[&str] = &["keep", "denials", "identities"];
const HOUR: Duration = Duration::from_secs(3600);
const LONGEST: Duration = Duration::from_secs(90 * 24 * 3600);

/// How much is kept of what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// How long counts per minute and denials are kept.
    pub keep: Duration,
    /// The maximum number of rows of denials, one for each rule, identity and minute.
    pub denials: usize,
    /// How many of the heaviest identities are kept for each rule and hour.
    pub identities: usize,
}

impl Default for History {
    fn default() -> Self {
        Self {
            keep: 7 * 24 * HOUR,
            denials: 100_000,
            identities: 1_000,
        }
    }
}

impl History {
    /// Reads the section; `None` if it is `false`.
    pub(super) fn read(root: &mut Section<'_, '_>) -> Option<Self> {
        let node = root.get("history").filter(|node| !node.is_null());
        let scalar = node.filter(|node| !matches!(node.value, Value::Map(_)));
        if let Some(node) = scalar {
            return Self::read_switch(root, node);
        }
        let default = Self::default();
        let mut section = Section::read(node, "`history`", FIELDS, root.faults);
        let keep = section.duration("keep", default.keep);
        if let Some(node) = section.get("keep")
            && !(HOUR..=LONGEST).contains(&keep)
        {
            section.fault(node, "`keep` must be from 1h to 90d");
        }
        let history = Self {
            keep,
            denials: section.whole("denials", 1_000..=1_000_000, default.denials),
            identities: section.whole("identities", 10..=100_000, default.identities),
        };
        let shown = section.into_node();
        root.show("history", shown);
        Some(history)
    }

    /// Reads `true` or `false`.
    fn read_switch(root: &mut Section<'_, '_>, node: &Node) -> Option<Self> {
        let is_on = match node.as_text() {
            Some("true") => true,
            Some("false") => false,
            _ => {
                let message = "`history` must be true, false or a mapping such as { keep: 7d }";
                root.fault(node, message);
                return None;
            }
        };
        if !is_on {
            root.show("history", tree::plain(false));
            return None;
        }
        let default = Self::default();
        let shown = tree::map([
            ("keep", tree::duration(default.keep)),
            ("denials", tree::plain(default.denials)),
            ("identities", tree::plain(default.identities)),
        ]);
        root.show("history", shown);
        Some(default)
    }
}
