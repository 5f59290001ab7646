//! Path patterns: their segments, the positions of their wildcards, and the literal fragments that
//! a path must contain to match.

/// A path pattern, as a list of segments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    pub(super) segments: Vec<Segment>,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Segment {
    /// Exactly this text.
    Literal(Box<str>),
    /// `*`: any one segment.
    Any,
    /// `{name}`: any one segment that is not empty. The name is for people.
    NonEmpty,
    /// A text with `*` or `?` in it.
    Glob(Vec<Token>),
    /// `**`: zero or more whole segments.
    Deep,
}

/// One element of a glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Token {
    /// This character.
    Char(char),
    /// `?`: any one character.
    One,
    /// `*`: any characters.
    Many,
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It does not begin with a slash.
    #[error("a path pattern must begin with `/`; `{0}` does not")]
    NoSlash(String),
    /// It has `**` inside of a segment.
    #[error("`**` must be a whole segment; `{0}` has more in it")]
    DeepInSegment(String),
    /// It has a brace that is not part of a whole segment such as `{id}`.
    #[error(
        "`{{name}}` must be a whole segment, and a name has letters, digits, `_`, `-` and `.`; \
         `{0}` is not one: write `*` for any characters of a segment"
    )]
    Brace(String),
}

impl Pattern {
    /// Parses a pattern: `?` is one character, `*` any characters of a segment, `{name}` one
    /// segment that is not empty, `**` zero or more whole segments.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PatternError::NoSlash(text.into()));
        };
        let segments = rest.split('/').map(Segment::parse);
        Ok(Self {
            segments: segments.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the pattern with its ASCII letters in lower case.
    pub(super) fn to_ascii_lowercase(&self) -> Self {
        let segments = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => Segment::Literal(text.to_ascii_lowercase().into()),
            Segment::Glob(tokens) => {
                let tokens = tokens.iter().map(|token| match token {
                    Token::Char(it) => Token::Char(it.to_ascii_lowercase()),
                    other => *other,
                });
                Segment::Glob(tokens.collect())
            }
            other => other.clone(),
        });
        Self {
            segments: segments.collect(),
        }
    }

    /// Returns the shape, or `None` if a path may keep any number of patterns of it active:
    /// if there is a literal between two wildcards and the first one has a variable length.
    pub(super) fn shape(&self) -> Option<Shape> {
        let is_deep = |segment: &Segment| *segment == Segment::Deep;
        let is_text = |segment: &Segment| matches!(segment, Segment::Literal(_));
        let segments = &self.segments[..];
        let end = segments.iter().rposition(|segment| !is_deep(segment));
        let segments = &segments[..end.map_or(0, |last| last + 1)];
        let end = segments.iter().rposition(|segment| !is_text(segment));
        let segments = &segments[..end.map_or(0, |last| last + 1)];
        if segments.iter().filter(|segment| is_deep(segment)).count() > 1 {
            return None;
        }
        let kinds = segments.iter().map(|segment| match segment {
            Segment::Literal(_) => Some(Kind::Literal),
            Segment::Any => Some(Kind::Any),
            Segment::NonEmpty => Some(Kind::NonEmpty),
            Segment::Deep => Some(Kind::Deep),
            Segment::Glob(_) => None,
        });
        kinds.collect::<Option<_>>().map(Shape)
    }

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

impl Segment {
    fn parse(text: &str) -> Result<Self, PatternError> {
        match text {
            "*" => Ok(Self::Any),
            "**" => Ok(Self::Deep),
            _ if is_variable(text) => Ok(Self::NonEmpty),
            _ if text.contains(['{', '}']) => Err(PatternError::Brace(text.into())),
            _ if text.contains("**") => Err(PatternError::DeepInSegment(text.into())),
            _ if text.contains(['*', '?']) => {
                let tokens = text.chars().map(|char| match char {
                    '*' => Token::Many,
                    '?' => Token::One,
                    other => Token::Char(other),
                });
                Ok(Self::Glob(tokens.collect()))
            }
            _ => Ok(Self::Literal(text.into())),
        }
    }
}

/// Returns whether a segment is a name in braces. What other programs write there besides, such
/// as `{id:[0-9]+}` or `{*rest}`, means something else.
fn is_variable(segment: &str) -> bool {
    let name = segment
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let is_allowed = |char: char| char.is_alphanumeric() || "_-.".contains(char);
    name.is_some_and(|name| !name.is_empty() && name.chars().all(is_allowed))
}

/// The texts between the slashes. Like `str::split`, but faster for short texts.
#[derive(Clone, Copy)]
pub(super) struct Segments<'p>(Option<&'p str>);

impl<'p> Segments<'p> {
    /// Returns `None` if the path does not begin with a slash.
    #[inline]
    pub(super) fn of(path: &'p str) -> Option<Self> {
        Some(Self(Some(path.strip_prefix('/')?)))
    }

    /// Returns whether no segment is left. A segment may be empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the number of bytes left, including the slashes between segments.
    pub(super) fn len(&self) -> usize {
        self.0.map_or(0, str::len)
    }
}

impl<'p> Iterator for Segments<'p> {
    type Item = &'p str;

    #[inline]
    fn next(&mut self) -> Option<&'p str> {
        let rest = self.0?;
        match rest.bytes().position(|byte| byte == b'/') {
            Some(end) => {
                self.0 = Some(&rest[end + 1..]);
                Some(&rest[..end])
            }
            None => self.0.take(),
        }
    }
}

impl DoubleEndedIterator for Segments<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let rest = self.0?;
        match rest.bytes().rposition(|byte| byte == b'/') {
            Some(end) => {
                self.0 = Some(&rest[..end]);
                Some(&rest[end + 1..])
            }
            None => self.0.take(),
        }
    }
}

/// The kinds of a pattern's segments, up to its last wildcard; a `**` at its end does
/// not count. Of all patterns of one shape, a path keeps only a few active in a trie,
/// because its own segments select the literals.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Shape(Vec<Kind>);

#[derive(Debug, PartialEq, Eq, Hash)]
enum Kind {
    Literal,
    Any,
    NonEmpty,
    Deep,
}

impl Shape {
    /// Returns whether there are no wildcards except a `**` at the end.
    pub(super) fn is_plain(&self) -> bool {
        self.0.is_empty()
    }
}

/// A text between two wildcards of a pattern.
#[derive(Debug, Default)]
pub(super) struct Fragment {
    pub(super) text: String,
    /// The segment of the pattern that it begins, with the slash before it.
    pub(super) begins: Option<usize>,
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
    fn a_shape_is_the_positions_of_the_wildcards() {
        let shape = |pattern: &str| Pattern::parse(pattern).unwrap().shape();
        for alike in [
            &["/a", "/b/c", "/a/**", "/**", "/a/**/**"][..],
            &["/a/*", "/b/*/c/d", "/b/*/**"],
            &["/a/**/b", "/b/**/c/d/**"],
            &["/*/a/*/b", "/*/b/*/a/**"],
            &["/a/{id}", "/b/{name}/c"],
        ] {
            assert!(alike.iter().all(|pattern| shape(pattern).is_some()));
            assert!(
                alike
                    .iter()
                    .all(|pattern| shape(pattern) == shape(alike[0]))
            );
        }
        assert!(shape("/a/b/**").is_some_and(|shape| shape.is_plain()));
        assert!(shape("/*/b").is_some_and(|shape| !shape.is_plain()));
        assert_ne!(shape("/*/a"), shape("/a/*"));
        assert_ne!(shape("/a/*"), shape("/a/{id}"));
        for pattern in ["/**/a/**/b", "/a*", "/a?/b", "/*/b/*c"] {
            assert_eq!(shape(pattern), None, "{pattern}");
        }
    }

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
