//! Text that may hold anything, made safe for a page.

use std::fmt::{self, Write};

/// Shows a text as HTML shows it: nothing in it is markup, and nothing in it is
/// obeyed. What cannot be seen is shown by its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Escaped<'a>(pub(super) &'a str);

/// More characters than this are cut off: a line of the input may have millions.
const MOST: usize = 200;

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, char) in self.0.chars().enumerate() {
            if index == MOST {
                return f.write_char('…');
            }
            match char {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\\' => f.write_char('\\')?,
                // Control characters, and those that turn the direction.
                char => write!(f, "{}", char.escape_debug())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_markup_and_nothing_is_obeyed() {
        let shown = |text| Escaped(text).to_string();
        assert_eq!(shown("<script>"), "&lt;script&gt;");
        assert_eq!(shown("\"a\" 'b' & c"), "&quot;a&quot; &#39;b&#39; &amp; c");
        assert_eq!(shown("&lt;"), "&amp;lt;");
        assert_eq!(
            shown("\u{1b}[2J\u{202e}a\0\n"),
            "\\u{1b}[2J\\u{202e}a\\0\\n"
        );
        assert_eq!(shown("Zoë 北京 a\\b"), "Zoë 北京 a\\b");
    }

    #[test]
    fn a_long_text_is_cut_off() {
        let shown = Escaped(&"ä".repeat(5_000)).to_string();
        assert_eq!(shown.chars().count(), MOST + 1);
        assert!(shown.ends_with('…'));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_character_of_markup_is_left(text in any::<String>()) {
            let shown = Escaped(&text).to_string();
            prop_assert!(!shown.contains(['<', '>', '"', '\'', '\n', '\0']));
        }
    }
}
