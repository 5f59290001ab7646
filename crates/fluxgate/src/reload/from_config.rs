//! The rule source that the config names.

use std::sync::Arc;

use super::config_file::ConfigFile;
use super::demo::Demo;
use super::http_rules::HttpRules;
#[cfg(feature = "mongodb")]
use super::mongo_rules::MongoRules;
use super::rule_dir::RuleDir;
use super::source::RuleSource;
use super::stored::RedisRules;
use crate::config::{Config, Deployment, RawConfig, Rules};
use crate::engine::AnyStore;
use crate::failure::Failure;

/// Returns the source that the config names. A config without a file cannot change.
pub(crate) fn rule_source(
    config: &Config,
    raw: &RawConfig,
    file: Option<Arc<ConfigFile>>,
    store: &AnyStore,
) -> Result<Arc<dyn RuleSource>, Failure> {
    let options = config.rule_options();
    let deployment = Deployment::located(config, |field| raw.place_of(field));
    Ok(match (&config.rules, file, store) {
        (Rules::Directory { path, poll }, _, _) => Arc::new(RuleDir {
            path: path.clone(),
            poll: *poll,
            options,
            deployment,
        }),
        (Rules::Redis { poll }, _, AnyStore::Redis(store)) => Arc::new(RedisRules {
            store: store.rule_store(),
            poll: *poll,
            options,
            deployment,
        }),
        (Rules::Http(http), _, _) => Arc::new(HttpRules::new(http, options, deployment)?),
        #[cfg(feature = "mongodb")]
        (Rules::MongoDb(mongodb), _, _) => Arc::new(MongoRules::new(mongodb, options, deployment)),
        (_, Some(file), _) => file,
        (_, None, _) => Arc::new(Demo(raw.clone())),
    })
}
