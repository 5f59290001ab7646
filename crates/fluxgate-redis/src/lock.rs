//! Locks that are never poisoned.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex under which nothing panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
