//! Limits that come with the call.

use fluxgate_core::OnError;
use fluxgate_core::values;
use fluxgate_core::yaml::{Faults, Node};

use super::tree;

/// How limits that come with the call (`/v1/consume`, `CL.THROTTLE`) behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// What is decided when the store cannot.
    pub on_error: OnError,
}

impl CallLimits {
    pub(super) fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        let [on_error] = node.map_or([None], |node| {
            node.fields("`call_limits`", ["on_error"], faults)
        });
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
