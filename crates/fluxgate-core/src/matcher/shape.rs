//! The positions of a pattern's wildcards.

use super::pattern::{Pattern, Segment};

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

impl Pattern {
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
}
