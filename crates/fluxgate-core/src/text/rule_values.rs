//! Values as rule files and configs write them.

use std::fmt::Write as _;
use std::time::Duration;

/// Words that a YAML reader may take for a boolean or null.
const KEYWORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// Returns a duration in the largest unit that divides it, such as `90s`.
///
/// ```
/// # use std::time::Duration;
/// # use fluxgate_core::text::duration_text;
/// assert_eq!(duration_text(Duration::from_secs(7200)), "2h");
/// assert_eq!(duration_text(Duration::from_millis(1500)), "1500ms");
/// assert_eq!(duration_text(Duration::ZERO), "0s");
/// ```
pub fn duration_text(span: Duration) -> String {
    const UNITS: [(u128, &str); 5] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
        (1, "ms"),
    ];
    let millis = span.as_millis();
    let mut units = UNITS.into_iter();
    let (size, unit) = units
        .find(|(size, _)| millis > 0 && millis.is_multiple_of(*size))
        .unwrap_or((1, "s"));
    format!("{}{unit}", millis / size)
}

/// Returns a text as YAML: in quotes, unless every reader takes it for a text without them.
///
/// ```
/// # use fluxgate_core::text::yaml_scalar;
/// assert_eq!(yaml_scalar("per-user"), "per-user");
/// assert_eq!(yaml_scalar("no"), "\"no\"");
/// assert_eq!(yaml_scalar("a\"b\n"), r#""a\"b\u000a""#);
/// ```
pub fn yaml_scalar(text: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(is_word)
        && !KEYWORDS.contains(&&*text.to_ascii_lowercase());
    if is_plain {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            // YAML does not print these as they are.
            '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(char));
            }
            _ => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}
