//! Names that servers may take for one another.
//!
//! CGI and its descendants read `X_User_Id` and `X.User.Id` as `X-User-Id`, PHP reads the
//! parameters `api.key`, `api[key` and `+api_key` as `api_key`, and others drop white space
//! around a name. A limiter that read only the exact name would count another request than the
//! one that is served.

/// How a name in a request relates to one that requests are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Likeness {
    Same,
    /// Servers may take it for that name.
    Alike,
    Other,
}

/// Returns whether two names are alike: they are equal once characters other than letters and
/// digits are dropped at both ends and written `_` elsewhere, and case is ignored.
pub fn are_alike(one: &[u8], other: &[u8]) -> bool {
    folded(one).eq(folded(other))
}

/// Returns whether a name has only letters, digits and, between them, hyphens. If two names of
/// this form are alike, they differ at most by case. Nearly all headers are of this form.
pub fn is_plain_name(name: &str) -> bool {
    const PLAIN: [bool; 256] = {
        let mut plain = [false; 256];
        let mut byte = 0;
        while byte < 128 {
            plain[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'-';
            byte += 1;
        }
        plain
    };
    let bytes = name.as_bytes();
    // Without a branch for each byte: names are short, and nearly all are plain.
    let is_plain = { bytes.iter() }.fold(true, |all, byte| all & PLAIN[usize::from(*byte)]);
    is_plain && bytes.first() != Some(&b'-') && bytes.last() != Some(&b'-')
}

/// Compares the decoded name of a query parameter or a cookie with one that is counted.
pub(crate) fn compare(name: &[u8], counted: &str) -> Likeness {
    let counted = counted.as_bytes();
    if name == counted {
        return Likeness::Same;
    }
    // PHP ends a name at a NUL, others drop it.
    let mut texts = [Some(name), before(0, name)].into_iter().flatten();
    let is_alike = |text: &[u8]| {
        // Many servers read `key[0]` as a part of `key`.
        are_alike(text, counted) || { before(b'[', text) }.is_some_and(|it| are_alike(it, counted))
    };
    if texts.any(|text| is_alike(text) || { without_ignored(text) }.is_some_and(|it| is_alike(&it)))
    {
        Likeness::Alike
    } else {
        Likeness::Other
    }
}

/// Returns the part of a name before a byte, if it has that byte.
fn before(end: u8, name: &[u8]) -> Option<&[u8]> {
    let at = name.iter().position(|byte| *byte == end)?;
    Some(&name[..at])
}

/// Returns a name without what some servers drop, if it has any: control characters, and bytes
/// that are not text.
fn without_ignored(name: &[u8]) -> Option<Vec<u8>> {
    let is_text = std::str::from_utf8(name).is_ok();
    if is_text && !name.iter().any(u8::is_ascii_control) {
        return None;
    }
    let chunks = name.utf8_chunks();
    let kept = chunks.flat_map(|chunk| chunk.valid().bytes());
    Some(kept.filter(|byte| !byte.is_ascii_control()).collect())
}

/// Returns the characters by which names are compared.
fn folded(name: &[u8]) -> impl Iterator<Item = char> {
    let chars = name.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid().iter().map(|_| '_');
        chunk.valid().chars().chain(invalid)
    });
    let is_kept = |it: &char| it.is_alphanumeric();
    let start = chars.clone().take_while(|it| !is_kept(it)).count();
    let numbered = chars.clone().enumerate();
    let last = numbered.filter(|(_, it)| is_kept(it)).last();
    let end = last.map_or(start, |(at, _)| at + 1);
    let core = chars.take(end).skip(start);
    core.flat_map(move |it| {
        let it = if is_kept(&it) { it } else { '_' };
        it.to_lowercase()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_alike_if_they_differ_in_other_characters_only() {
        for (one, other, expected) in [
            ("X-User-Id", "x-user-id", true),
            ("X-User-Id", "X_User_Id", true),
            ("X-User-Id", "X.User~Id", true),
            ("X-User-Id", "_X-User-Id.", true),
            ("X-User-Id", "X-UserId", false),
            ("X-User-Id", "X--User-Id", false),
            ("api_key", "api.key", true),
            ("api_key", "api[key", true),
            ("api_key", " api key\u{a0}", true),
            ("clé", "CLÉ", true),
            ("clé", "cle", false),
            ("", "--", true),
            ("", "a", false),
        ] {
            assert_eq!(are_alike(one.as_bytes(), other.as_bytes()), expected);
            assert_eq!(are_alike(other.as_bytes(), one.as_bytes()), expected);
        }
        assert!(are_alike(b"a_b", b"a\xffb") && are_alike(b"a", b"\xa0a"));
    }

    #[test]
    fn a_name_that_servers_cut_or_clean_is_alike() {
        for (name, expected) in [
            (&b"api_key"[..], Likeness::Same),
            (b"api_key\0", Likeness::Alike),
            (b"api_key\0x", Likeness::Alike),
            (b"api[key\0x", Likeness::Alike),
            (b"api_key[]", Likeness::Alike),
            (b"api_key[0]", Likeness::Alike),
            (b"api.key[a][b]", Likeness::Alike),
            (b"api_k\x01ey", Likeness::Alike),
            (b"api_k\x80ey", Likeness::Alike),
            (b"api_k\x01ey[0]", Likeness::Alike),
            (b"api_k\x80ey[]", Likeness::Alike),
            (b"api_k\x01ey\0z", Likeness::Alike),
            (b"api_k\x01ey[0]\0z", Likeness::Alike),
            (b"api_k\0ey[0]", Likeness::Alike),
            (b"API_KEY", Likeness::Alike),
            (b"\xc2\xa0api_key", Likeness::Alike),
            (b"api_keys", Likeness::Other),
            (b"my_api_key", Likeness::Other),
            (b"[api_key]x", Likeness::Other),
        ] {
            assert_eq!(compare(name, "api_key"), expected, "{name:?}");
        }
        assert_eq!(compare(b"f[id]", "f[id]"), Likeness::Same);
        assert_eq!(compare(b"f[name]", "f[id]"), Likeness::Other);
    }

    #[test]
    fn plain_names_are_alike_only_if_they_are_the_same() {
        for (name, expected) in [
            ("X-User-Id", true),
            ("x", true),
            ("X_User", false),
            ("x.y", false),
            ("-x", false),
            ("x-", false),
        ] {
            assert_eq!(is_plain_name(name), expected, "{name}");
        }
    }
}
