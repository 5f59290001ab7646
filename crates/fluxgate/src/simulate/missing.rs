//! Rule sets that lines ask for and the rule file does not have.

use std::sync::{Arc, Mutex, PoisonError};

use fluxgate_core::Observer;

/// Their names, in the order in which they were first asked for. Clones share
/// them.
#[derive(Clone, Debug, Default)]
pub(super) struct MissingSets(Arc<Mutex<Vec<String>>>);

impl MissingSets {
    pub(super) fn names(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Observer for MissingSets {
    fn rule_set_missing(&self, name: &str) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(name.to_owned());
        true
    }
}
