//! Warnings about settings that are valid, but probably not intended.

mod sources;
mod tokens;

use super::checked::Config;
pub use sources::source_warnings;
use tokens::warn_about_tokens;

/// Returns warnings about settings that are valid, but probably not intended.
pub fn config_warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |warning: String| warnings.push(warning);
    if config.listen.is_empty() {
        warn("`listen` names no listener: the service accepts no connections".into());
    }
    if config.hashes_without_secret() {
        warn(
            "`keys.hash_secret_file` is missing: anyone who can read the store can confirm \
             guesses of hashed identities"
                .into(),
        );
    }
    warn_about_tokens(config, &mut warn);
    for filter in &config.filters {
        let name = &filter.name;
        if filter.rule_set.is_none() {
            warn(format!(
                "filter `{name}` has no `rule_set`: everything passes"
            ));
        }
    }
    if config.listen.gateway.is_none() && !config.gateway.routes.is_empty() {
        warn("`gateway.routes` has no effect: `listen.gateway` is missing".into());
    }
    warnings
}
