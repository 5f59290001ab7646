//! Files that change, and signals.

mod directory;
pub(crate) mod regular_file;
mod reloaded_file;
mod signals;

pub(crate) use directory::{DirectoryWatch, settled};
pub(crate) use reloaded_file::{ReloadedFile, Source};
pub(crate) use signals::{Signals, next_signal};
