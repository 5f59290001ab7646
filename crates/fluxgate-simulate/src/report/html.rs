//! Texts of any content, made safe for a page, and tables.

use std::fmt::{self, Write};

use super::humanize::grouped;

/// Displays a text as HTML in which nothing is markup. Characters that are not
/// visible are escaped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Escaped<'a>(pub(super) &'a str);

/// Longer texts are cut off: a line of the input may have millions of characters.
const MAX_CHARS: usize = 200;

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, char) in self.0.chars().enumerate() {
            if index == MAX_CHARS {
                return f.write_char('…');
            }
            match char {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\\' => f.write_char('\\')?,
                // Control characters, and those that change the direction of text.
                char => write!(f, "{}", char.escape_debug())?,
            }
        }
        Ok(())
    }
}

/// Begins a table whose columns have these names, such as `rule|#requests`. A column with `#`
/// holds numbers.
pub(super) fn begin_table(f: &mut fmt::Formatter<'_>, id: &str, columns: &str) -> fmt::Result {
    write!(f, "<div class=\"scroll\"><table id=\"{id}\">\n<tr>")?;
    for column in columns.split('|') {
        match column.strip_prefix('#') {
            Some(name) => write!(f, "<th class=\"n\">{name}</th>")?,
            None => write!(f, "<th>{column}</th>")?,
        }
    }
    writeln!(f, "</tr>")
}

/// Writes cells with numbers, and ends the row.
pub(super) fn end_row(
    f: &mut fmt::Formatter<'_>,
    numbers: impl IntoIterator<Item = String>,
) -> fmt::Result {
    for number in numbers {
        write!(f, "<td class=\"n\">{number}</td>")?;
    }
    writeln!(f, "</tr>")
}

/// The most rows of a table.
pub(super) const MAX_ROWS: usize = 200;

/// Ends a table that has up to [`MAX_ROWS`] of `rows` rows, and counts the others below it.
pub(super) fn end_table(f: &mut fmt::Formatter<'_>, rows: usize) -> fmt::Result {
    writeln!(f, "</table></div>")?;
    match rows.saturating_sub(MAX_ROWS) as u64 {
        0 => Ok(()),
        more => writeln!(f, "<p>And {} more.</p>", grouped(more)),
    }
}

/// Returns the first `most` names as HTML, and the number of the others.
pub(super) fn name_list<'a>(names: impl IntoIterator<Item = &'a str>, most: usize) -> String {
    let mut names = names.into_iter();
    let shown: Vec<_> = names
        .by_ref()
        .take(most)
        .map(|name| format!("<code>{}</code>", Escaped(name)))
        .collect();
    let list = shown.join(", ");
    match names.count() as u64 {
        0 => list,
        more => format!("{list} and {} more", grouped(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn markup_and_control_characters_are_escaped() {
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
        assert_eq!(shown.chars().count(), MAX_CHARS + 1);
        assert!(shown.ends_with('…'));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_markup_is_left(text in any::<String>()) {
            let shown = Escaped(&text).to_string();
            prop_assert!(!shown.contains(['<', '>', '"', '\'', '\n', '\0']));
        }
    }
}
