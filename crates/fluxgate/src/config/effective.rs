//! The effective configuration, as YAML that can be loaded again.

mod writer;

use super::raw::{ConfigError, RawConfig};
use super::warnings::config_warnings;

/// Returns the effective configuration as YAML: with defaults filled in, secrets redacted, and
/// warnings and the origins of overridden values as comments.
pub fn effective_yaml(raw: &RawConfig) -> Result<String, ConfigError> {
    let (config, effective) = raw.check_effective()?;
    let file = raw.origins.file();
    let mut text = comment(&format!("The effective configuration of {file}."));
    for warning in config_warnings(&config) {
        text += &comment(&format!("warning: {warning}"));
    }
    text += &writer::to_yaml(&effective, raw);
    Ok(text)
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
