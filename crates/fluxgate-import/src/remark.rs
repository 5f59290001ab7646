//! Remarks on what is missing or differs.

/// Whether a remark is about something that is missing or something that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemarkKind {
    /// It has no counterpart in the rules.
    Lost,
    /// It has a counterpart that behaves differently.
    Changed,
}

/// A remark on a line of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The line in the source, from 1.
    pub line: usize,
    pub(crate) kind: RemarkKind,
    pub(crate) text: String,
}

impl Remark {
    /// Something that the rules do not express.
    pub(crate) fn lost(line: usize, text: impl Into<String>) -> Self {
        let (kind, text) = (RemarkKind::Lost, text.into());
        Self { line, kind, text }
    }

    /// Something that the rules express differently.
    pub(crate) fn changed(line: usize, text: impl Into<String>) -> Self {
        let (kind, text) = (RemarkKind::Changed, text.into());
        Self { line, kind, text }
    }

    /// Returns the remark without its line, on one line of text.
    pub fn sentence(&self) -> String {
        let begin = match self.kind {
            RemarkKind::Lost => "not carried over",
            RemarkKind::Changed => "changed",
        };
        format!("{begin}: {}", on_one_line(&self.text))
    }
}

/// Returns a text without line breaks and other control characters, which would end a comment
/// or make it unreadable.
pub(crate) fn on_one_line(text: &str) -> String {
    // YAML treats these as line breaks or does not print them.
    let is_special = |char| matches!(char, '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let is_blank = |char: char| char.is_control() || char.is_whitespace() || is_special(char);
    let words = text.split(is_blank).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}
