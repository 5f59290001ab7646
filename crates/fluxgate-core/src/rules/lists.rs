//! The named lists of a rule set.

use std::sync::Arc;

/// The most values of one list.
pub(super) const MAX_VALUES: usize = 100_000;

/// A named list of values, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) name: Box<str>,
    pub(super) values: Arc<[Box<str>]>,
}

impl List {
    pub(super) fn new(name: impl Into<Box<str>>, values: Vec<Box<str>>) -> Self {
        Self {
            name: name.into(),
            values: values.into(),
        }
    }
}
