//! The section `call_limits`.

use fluxgate_core::OnError;
use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Faults, Node};

use super::read::Section;
use super::tree;

/// How limits that come with the call (`/v1/consume`, `CL.THROTTLE`) behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// The decision if the store fails.
    pub on_error: OnError,
}

impl CallLimits {
    pub(super) fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        let section = Section::read(node, "`call_limits`", &["on_error"], faults);
        let on_error = section.get("on_error");
        let on_error = on_error.and_then(|node| values::on_error(node, faults));
        Self {
            on_error: on_error.unwrap_or_default(),
        }
    }

    pub(super) fn node(self) -> Node {
        let on_error = tree::name_of(&OnError::NAMES, self.on_error);
        tree::map([("on_error", Some(on_error))])
    }
}
