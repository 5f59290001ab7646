//! The section `shutdown`: how the service ends.

use std::time::Duration;

use fluxgate_core::yaml::{Faults, Node};

use super::read::Section;
use super::tree;

/// How long requests in flight may take, unless configured.
const GRACE: Duration = Duration::from_secs(25);

/// How the service ends after SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// How long it still accepts connections while it reports that it is not ready.
    pub delay: Duration,
    /// How long requests in flight may take after that.
    pub grace: Duration,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            grace: GRACE,
        }
    }
}

impl Shutdown {
    pub(super) fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        let section = Section::read(node, "`shutdown`", &["delay", "grace"], faults);
        let default = Self::default();
        Self {
            delay: section.short_duration("delay", default.delay, faults),
            grace: section.short_duration("grace", default.grace, faults),
        }
    }

    pub(super) fn node(self) -> Node {
        tree::map([
            ("delay", Some(tree::duration(self.delay))),
            ("grace", Some(tree::duration(self.grace))),
        ])
    }
}
