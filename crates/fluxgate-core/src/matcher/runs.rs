//! What a path must contain to fit a pattern.

use super::pattern::{Pattern, Segment, Token};

/// A text between the wildcards of a pattern.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) text: String,
    /// The segment of the pattern that it is the beginning of, with the slash
    /// before it.
    pub(super) begins: Option<usize>,
}

impl Pattern {
    /// The texts between its wildcards, in their order, those of slashes only
    /// left out. A path that fits, with a slash behind it, contains them all.
    pub(super) fn runs(&self) -> Vec<Run> {
        let mut runs = Runs::default();
        for (index, segment) in self.segments.iter().enumerate() {
            // `**` has none of its own, but one ends the segment before it.
            runs.push('/', Some(index));
            match segment {
                Segment::Literal(text) => text.chars().for_each(|char| runs.push(char, None)),
                Segment::Glob(tokens) => tokens.iter().for_each(|token| match token {
                    Token::Char(char) => runs.push(*char, None),
                    Token::One | Token::Many => runs.end(),
                }),
                Segment::Any | Segment::Deep => runs.end(),
            }
        }
        runs.push('/', None);
        runs.end();
        runs.ended
    }
}

#[derive(Default)]
struct Runs {
    ended: Vec<Run>,
    current: Run,
}

impl Runs {
    fn push(&mut self, char: char, begins: Option<usize>) {
        if self.current.text.is_empty() {
            self.current.begins = begins;
        }
        self.current.text.push(char);
    }

    fn end(&mut self) {
        let run = std::mem::take(&mut self.current);
        if run.text.bytes().any(|byte| byte != b'/') {
            self.ended.push(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_stands_between_wildcards() {
        for (pattern, runs) in [
            ("/a/b", &[("/a/b/", Some(0))][..]),
            ("/a/**", &[("/a/", Some(0))]),
            ("/**/a/b/**/c", &[("/a/b/", Some(1)), ("/c/", Some(4))]),
            ("/a/*/b/*", &[("/a/", Some(0)), ("/b/", Some(2))]),
            (
                "/a?b/c*/*d",
                &[("/a", Some(0)), ("b/c", None), ("d/", None)],
            ),
            ("/*/?/**", &[]),
            ("/ä*", &[("/ä", Some(0))]),
        ] {
            let found = Pattern::parse(pattern).unwrap().runs();
            let found = found.iter().map(|run| (&*run.text, run.begins));
            assert_eq!(found.collect::<Vec<_>>(), runs, "{pattern}");
        }
    }
}
