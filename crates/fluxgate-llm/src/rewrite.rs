//! Changes of a text that leave the rest of it as it is.

use std::ops::Range;

/// A part of a text, and what takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) at: Range<usize>,
    pub(crate) text: String,
}

impl Edit {
    pub(crate) fn replace(at: &Range<usize>, value: impl ToString) -> Self {
        let at = at.clone();
        let text = value.to_string();
        Self { at, text }
    }
}

/// Returns `text` with the edits, which do not overlap. Edits at the same place follow each
/// other in the given order.
pub(crate) fn apply(text: &[u8], mut edits: Vec<Edit>) -> Vec<u8> {
    edits.sort_by_key(|edit| edit.at.start);
    let added: usize = edits.iter().map(|edit| edit.text.len()).sum();
    let mut edited = Vec::with_capacity(text.len() + added);
    let mut done = 0;
    for Edit { at, text: new } in edits {
        edited.extend_from_slice(text.get(done..at.start).unwrap_or_default());
        edited.extend_from_slice(new.as_bytes());
        done = at.end;
    }
    edited.extend_from_slice(text.get(done..).unwrap_or_default());
    edited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_applied_in_order_of_their_places() {
        let edit = |at, text: &str| Edit {
            at,
            text: text.to_owned(),
        };
        let edits = vec![
            edit(5..5, "x"),
            edit(1..3, ""),
            edit(5..5, "y"),
            edit(0..1, "AA"),
        ];
        assert_eq!(apply(b"abcdef", edits), b"AAdexyf");
        assert_eq!(apply(b"abc", Vec::new()), b"abc");
    }
}
