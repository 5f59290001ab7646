//! Reloads the rules while the service runs: where they come from, how a change is
//! noticed, and how it becomes active.

mod changes;
mod config_file;
mod json;
mod reloader;
mod rule_dir;
mod snapshot;
mod source;
mod stored;

pub(crate) use changes::changes_json;
pub(crate) use config_file::ConfigFile;
pub(crate) use json::{parse_json, to_json, unplaced};
pub(crate) use reloader::{ReloadHandle, RuleReloader};
pub(crate) use rule_dir::rules_in;
pub(crate) use source::RuleSource;
pub(crate) use stored::{check_set, wrap_in_mapping};
