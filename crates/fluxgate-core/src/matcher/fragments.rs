//! The literal fragments of a pattern, which a path must contain to match.

use super::pattern::{Pattern, Segment, Token};

/// A text between two wildcards of a pattern.
#[derive(Debug, Default)]
pub(super) struct Fragment {
    pub(super) text: String,
    /// The segment of the pattern that it begins, with the slash before it.
    pub(super) begins: Option<usize>,
}

impl Pattern {
    /// Returns the texts between its wildcards, in order, except those of slashes only. A
    /// path that matches, with a slash appended, contains them all.
    pub(super) fn fragments(&self) -> Vec<Fragment> {
        let mut fragments = Builder::default();
        for (index, segment) in self.segments.iter().enumerate() {
            // `**` has no slash of its own, but one ends the segment before it.
            fragments.push('/', Some(index));
            match segment {
                Segment::Literal(text) => text.chars().for_each(|char| fragments.push(char, None)),
                Segment::Glob(tokens) => tokens.iter().for_each(|token| match token {
                    Token::Char(char) => fragments.push(*char, None),
                    Token::One | Token::Many => fragments.end(),
                }),
                Segment::Any | Segment::NonEmpty | Segment::Deep => fragments.end(),
            }
        }
        fragments.push('/', None);
        fragments.end();
        fragments.ended
    }
}

#[derive(Default)]
struct Builder {
    ended: Vec<Fragment>,
    current: Fragment,
}

impl Builder {
    fn push(&mut self, char: char, begins: Option<usize>) {
        if self.current.text.is_empty() {
            self.current.begins = begins;
        }
        self.current.text.push(char);
    }

    fn end(&mut self) {
        let fragment = std::mem::take(&mut self.current);
        if fragment.text.bytes().any(|byte| byte != b'/') {
            self.ended.push(fragment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_the_texts_between_wildcards() {
        for (pattern, fragments) in [
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
            let found = Pattern::parse(pattern).unwrap().fragments();
            let found = found.iter().map(|it| (&*it.text, it.begins));
            assert_eq!(found.collect::<Vec<_>>(), fragments, "{pattern}");
        }
    }
}
