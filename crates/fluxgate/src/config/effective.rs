//! The effective configuration, as YAML that can be loaded again.

mod redact;
mod writer;

use fluxgate_core::OnMissingRuleSet;
use fluxgate_core::yaml::Node;

use super::checked::Config;
use super::filters::Filter;
use super::raw::{ConfigError, RawConfig};
use super::rules::Rules;
use super::tree;
use super::warnings::config_warnings;

/// Returns the effective configuration as YAML: with defaults filled in, secrets redacted, and
/// warnings and the origins of overridden values as comments.
pub fn effective_yaml(raw: &RawConfig) -> Result<String, ConfigError> {
    let config = raw.check()?;
    let file = raw.origins.file();
    let mut text = comment(&format!("The effective configuration of {file}."));
    for warning in config_warnings(&config) {
        text += &comment(&format!("warning: {warning}"));
    }
    text += &writer::to_yaml(&effective(raw, &config), raw);
    Ok(text)
}

fn effective(raw: &RawConfig, config: &Config) -> Node {
    let filters = config.filters.iter();
    let filters = tree::map(filters.map(|filter| (&filter.name[..], Some(Filter::node(filter)))));
    let rule_sets = match config.rules {
        Rules::Inline(_) => tree::child(&raw.tree, "rule_sets").map(redact::api_keys),
        _ => None,
    };
    let on_missing = match config.on_missing_rule_set {
        OnMissingRuleSet::Allow => "allow",
        OnMissingRuleSet::Deny => "deny",
    };
    tree::map([
        ("store", Some(config.store.node())),
        ("keys", Some(config.keys.node())),
        ("listen", config.listen.node()),
        ("filters", Some(filters)),
        ("gateway", Some(config.gateway.node())),
        ("rule_sets", rule_sets.filter(|node| !node.is_null())),
        ("rules_from", config.rules.rules_from_node()),
        ("on_missing_rule_set", Some(tree::plain(on_missing))),
        ("call_limits", Some(config.call_limits.node())),
        ("admin", Some(config.admin.node())),
        ("telemetry", Some(config.telemetry.node())),
        ("shutdown", Some(config.shutdown.node())),
    ])
}

/// Returns a comment of one line. Characters that are not printable are escaped.
fn comment(text: &str) -> String {
    let mut line = String::from("# ");
    for char in text.chars() {
        if writer::is_printable(char) {
            line.push(char);
        } else {
            line.extend(char.escape_unicode());
        }
    }
    line + "\n"
}
