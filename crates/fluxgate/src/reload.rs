//! Reloads the rules and the settings of the config file while the service runs: where rules come
//! from, how a change is noticed, and how it becomes active.

mod cache_file;
mod changes;
mod config_file;
mod demo;
mod error;
mod from_config;
mod http_rules;
mod json;
mod messages;
#[cfg(feature = "mongodb")]
mod mongo_rules;
mod reloader;
mod rule_dir;
mod rule_files;
mod settings;
mod settings_reloader;
mod snapshot;
mod source;
mod stored;

pub(crate) use changes::changes_json;
pub(crate) use config_file::ConfigFile;
pub(crate) use error::ReloadError;
pub(crate) use from_config::rule_source;
pub(crate) use json::{parse_json, to_json, unplaced};
pub(crate) use reloader::{ReloadHandle, RuleReloader};
pub(crate) use rule_dir::rules_in;
pub(crate) use settings::{PreparedSettings, Settings};
pub(crate) use settings_reloader::SettingsReloader;
pub(crate) use stored::{check_set, wrap_in_mapping};
