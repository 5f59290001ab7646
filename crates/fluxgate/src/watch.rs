//! Watches files for changes, and waits for signals.

mod change_notifier;
mod reloaded_file;
mod signals;

pub(crate) use change_notifier::{DirectoryWatch, wait_until_quiet};
pub(crate) use reloaded_file::{FileValue, LoadedFile, ReloadedFile};
pub(crate) use signals::{Signals, next_signal};
