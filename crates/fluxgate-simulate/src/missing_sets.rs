//! Rule sets that requests name and that do not exist.

use std::sync::{Arc, Mutex, PoisonError};

use fluxgate_core::Observer;

/// The names of rule sets that do not exist, in the order in which requests named
/// them first. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct MissingRuleSets(Arc<Mutex<Vec<String>>>);

impl MissingRuleSets {
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.clone()
    }
}

impl Observer for MissingRuleSets {
    fn rule_set_missing(&self, name: &str) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(name.to_owned());
        true
    }
}
