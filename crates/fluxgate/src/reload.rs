//! Reloads the rules while the service runs: where they come from, how a change is
//! noticed, and how it becomes active.

mod config_file;
mod directory;
mod json;
mod reloader;
mod snapshot;
mod source;
mod stale_state;
mod stored;

pub(crate) use config_file::ConfigFile;
pub(crate) use directory::rules_in;
pub(crate) use json::{Json, parse_node};
pub(crate) use reloader::{ReloadHandle, RuleReloader};
pub(crate) use source::{Origin, Source};
pub(crate) use stored::check_set;
