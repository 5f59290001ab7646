//! One value for each Tokio runtime: its connection to a server (`node.rs`), its batches
//! (`batch.rs`).
//!
//! Waking a task of another runtime costs a system call. So in a program with a runtime for each
//! core, each has its own connections and queues, and a decision never leaves its core. A
//! program with one runtime has one value.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::runtime::{Handle, Id};

/// The most values. Nothing tells when a runtime ends, so a new value replaces the oldest one; a
/// runtime that still needs that one gets another.
const MAX: usize = 256;

/// One value for each runtime.
#[derive(Debug)]
pub(crate) struct PerRuntime<T>(RwLock<Vec<(Id, Arc<T>)>>);

impl<T> PerRuntime<T> {
    pub(crate) fn new() -> Self {
        Self(RwLock::default())
    }

    /// Returns the value of the current runtime; makes it if there is none.
    pub(crate) fn current(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let runtime = Handle::current().id();
        let known = |values: &[(Id, Arc<T>)]| {
            let known = values.iter().find(|(id, _)| *id == runtime);
            known.map(|(_, value)| Arc::clone(value))
        };
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known(&values) {
            return value;
        }
        drop(values);
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known(&values).unwrap_or_else(|| {
            if values.len() == MAX {
                values.remove(0);
            }
            let value = Arc::new(make());
            values.push((runtime, Arc::clone(&value)));
            value
        })
    }

    /// Calls `each` with the value of each runtime.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&T)) {
        let values = self.0.read().unwrap_or_else(PoisonError::into_inner);
        values.iter().for_each(|(_, value)| each(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_that_come_and_go_do_not_add_up() {
        let values = PerRuntime::new();
        for number in 0..2 * MAX {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.build().unwrap();
            let _entered = runtime.enter();
            for _ in 0..2 {
                assert_eq!(*values.current(|| number), number);
            }
        }
        let mut kept = Vec::new();
        values.for_each(|number| kept.push(*number));
        assert_eq!(kept, (MAX..2 * MAX).collect::<Vec<_>>());
    }
}
