//! What other instances have written to the record of what happened, and cursors of callers.

/// Reads lines as ids of identities, cursors and rows of denials, and everything as a list of the
/// heaviest identities. What is read must be read again as it is written, and sums must not overflow.
pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    crate::history::fuzz::rows(&text);
    crate::usage::fuzz::shared_top(bytes);
}
