//! Foreign text in messages: a terminal must show it and not obey it.

use std::fmt::Write as _;

/// Returns whether a terminal shows a character. Control characters move the cursor, ring the
/// bell or start a command; others end the line, or change the order in which text is shown.
pub fn is_printable(char: char) -> bool {
    let is_line_break = matches!(char, '\u{2028}' | '\u{2029}');
    let reorders = matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !char.is_control() && !is_line_break && !reorders
}

/// Returns a text in which every other character is written as `\u001b`, except those in
/// `kept`. JSON and quoted YAML keep their meaning.
pub fn escape_unprintable(text: impl Into<String>, kept: &[char]) -> String {
    let text = text.into();
    let is_kept = |char: char| is_printable(char) || kept.contains(&char);
    if text.chars().all(is_kept) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_kept(char) {
            escaped.push(char);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(char));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let hostile = "a\u{1b}[31m\u{7}\u{7f}\u{9b}\r\n\t\u{202e}b\u{2028}é한";
        assert_eq!(
            escape_unprintable(hostile, &[]),
            "a\\u001b[31m\\u0007\\u007f\\u009b\\u000d\\u000a\\u0009\\u202eb\\u2028é한"
        );
        assert_eq!(
            escape_unprintable("a\n\tb\r", &['\n', '\t']),
            "a\n\tb\\u000d"
        );
        assert_eq!(escape_unprintable("plain", &[]), "plain");
    }
}
