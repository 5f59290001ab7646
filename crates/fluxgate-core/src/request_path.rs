//! The path of a request, in the two forms in which servers read it.

use std::borrow::Cow;

use crate::lossless::{LEAD, into_lossless_text};

/// The path of a request in its raw form and its normal form.
///
/// Servers disagree about `%61`, `%2f`, `//`, `\` and `;x`: one serves `/%61pi//x;v=1` as it
/// is, another serves `/api/x`. Rules match if either form does. In the normal form every
/// percent escape is decoded once, `\` is `/`, each segment is cut at its first `;`, and
/// repeated slashes are merged, in this order. An invalid escape (`%zz`) stays. Bytes that
/// are not text are encoded as in [`lossless_text`](crate::internals::lossless_text).
///
/// ```
/// use fluxgate_core::internals::RequestPath;
///
/// # fn main() -> Result<(), fluxgate_core::internals::PathError> {
/// let path = RequestPath::read("/%61pi//x;v=1")?;
/// assert_eq!((path.raw(), path.normal()), ("/%61pi//x;v=1", "/api/x"));
/// assert!(RequestPath::read("/api/%2e%2e/x").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPath<'a> {
    raw: Cow<'a, str>,
    /// Only if it differs.
    normal: Option<Cow<'a, str>>,
}

/// Why a path is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathError(&'static str);

impl PathError {
    const NO_PATH: Self = Self("the target is not a path");
    const DOTS: Self = Self("the path has `.` or `..` in it");
    const NUL: Self = Self("the path has an escaped NUL in it");
    const HIDDEN_SLASH: Self = Self("the path has an escaped slash or a backslash behind a `;`");

    /// Returns the reason, as it is sent to a client.
    pub const fn reason(self) -> &'static str {
        self.0
    }
}

impl<'a> RequestPath<'a> {
    /// Uses a path as it is, in both forms.
    pub fn as_given(path: impl Into<Cow<'a, str>>) -> Self {
        Self {
            raw: path.into(),
            normal: None,
        }
    }

    /// Sets the normal form, as it is.
    pub fn with_normal(mut self, normal: impl Into<Cow<'a, str>>) -> Self {
        let normal = Some(normal.into());
        self.normal = normal.filter(|normal| *normal != self.raw);
        self
    }

    /// Parses the path of a request's target, without the query. The target `*` counts as
    /// `/*`, an empty path as `/`.
    ///
    /// # Errors
    /// If it does not begin with `/`, or if servers could read it in yet other ways: with a
    /// segment `.` or `..` in either form, with `%00`, or with an escaped slash in a parameter
    /// (some servers cut parameters before they decode, some after).
    pub fn read(path: &'a str) -> Result<Self, PathError> {
        match path {
            "*" => return Ok(Self::as_given("/*")),
            "" => return Ok(Self::as_given("/")),
            _ if !path.starts_with('/') => return Err(PathError::NO_PATH),
            _ => {}
        }
        if is_plain(path.as_bytes())? {
            return Ok(Self::as_given(path));
        }
        let normal = into_lossless_text(normalize(path.as_bytes())?);
        Ok(Self::as_given(path).with_normal(normal))
    }

    /// Returns the path as it was sent.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// Returns the normal form.
    pub fn normal(&self) -> &str {
        self.other().unwrap_or(&self.raw)
    }

    /// Returns the normal form if it differs from the raw one.
    pub fn other(&self) -> Option<&str> {
        self.normal.as_deref()
    }

    /// Returns whether `holds` returns true for at least one form.
    pub fn either(&self, mut holds: impl FnMut(&str) -> bool) -> bool {
        holds(&self.raw) || self.other().is_some_and(holds)
    }

    /// Returns whether `holds` returns true for both forms.
    pub fn both(&self, mut holds: impl FnMut(&str) -> bool) -> bool {
        holds(&self.raw) && self.other().is_none_or(holds)
    }

    /// Returns a path that borrows from this one.
    pub fn borrowed(&self) -> RequestPath<'_> {
        RequestPath {
            raw: Cow::Borrowed(&self.raw),
            normal: self.normal.as_deref().map(Cow::Borrowed),
        }
    }

    /// Converts to a path that owns its text.
    pub fn into_owned(self) -> RequestPath<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        RequestPath {
            raw: own(self.raw),
            normal: self.normal.map(own),
        }
    }
}

/// Returns whether all servers read a path in the same way.
fn is_plain(path: &[u8]) -> Result<bool, PathError> {
    if !may_be_special(path) {
        return Ok(true);
    }
    for (at, byte) in path.iter().enumerate() {
        match &path[at..] {
            [b'/', b'/', ..] => return Ok(false),
            [b'/', segment @ ..] if begins_with_dots(segment) => return Err(PathError::DOTS),
            _ if CLASSES[usize::from(*byte)] == SPECIAL => return Ok(false),
            _ => {}
        }
    }
    Ok(true)
}

/// Returns whether a path needs a closer look, which few do: it has a byte that the normal
/// form may replace, or a slash before a slash or a dot. The loop has no branches.
fn may_be_special(path: &[u8]) -> bool {
    let (mut found, mut before) = (0, 0);
    for byte in path {
        let class = CLASSES[usize::from(*byte)];
        found |= (class & SPECIAL) | (((before & BEFORE) << 1) & class);
        before = class;
    }
    found != 0
}

const SPECIAL: u8 = 1;
/// A slash; one bit below [`BEHIND`].
const BEFORE: u8 = 2;
/// A slash or a dot.
const BEHIND: u8 = 4;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let special = [b'%', b'\\', b';', 0, LEAD];
    let mut at = 0;
    while at < special.len() {
        classes[special[at] as usize] = SPECIAL;
        at += 1;
    }
    classes[b'/' as usize] = BEFORE | BEHIND;
    classes[b'.' as usize] = BEHIND;
    classes
};

/// Returns whether the first segment is `.` or `..`.
fn begins_with_dots(path: &[u8]) -> bool {
    matches!(
        path,
        [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..]
    )
}

/// Returns the normal form. Every separator of the raw form is one here too, so its dot
/// segments are found as well.
fn normalize(path: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut normal = Vec::with_capacity(path.len());
    // Whether a `;` has ended the segment.
    let mut is_cut = false;
    let mut rest = path;
    while let [first, behind @ ..] = rest {
        let (byte, is_plain_slash);
        (byte, is_plain_slash, rest) = match escape(rest) {
            Some((byte, behind)) => (byte, false, behind),
            None => (*first, *first == b'/', behind),
        };
        match byte {
            0 => return Err(PathError::NUL),
            b'/' | b'\\' => {
                if is_cut && !is_plain_slash {
                    return Err(PathError::HIDDEN_SLASH);
                }
                is_cut = false;
                if normal.last() != Some(&b'/') {
                    normal.push(b'/');
                }
            }
            b';' => is_cut = true,
            _ if is_cut => {}
            _ => normal.push(byte),
        }
    }
    let mut segments = normal.split(|byte| *byte == b'/');
    match segments.any(|segment| matches!(segment, b"." | b"..")) {
        true => Err(PathError::DOTS),
        false => Ok(normal),
    }
}

/// Decodes a percent escape at the start. Returns the byte and the rest.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'%', high, low, rest @ ..] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = digit(*high)? * 16 + digit(*low)?;
    Some((u8::try_from(byte).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_two_forms() {
        for (raw, normal) in [
            ("/", "/"),
            ("/api/x", "/api/x"),
            ("/api/.well-known/..x/...", "/api/.well-known/..x/..."),
            ("/%61pi/x", "/api/x"),
            ("/api%2fx", "/api/x"),
            ("/api%2Fx", "/api/x"),
            ("/api\\x", "/api/x"),
            ("/api%5cx", "/api/x"),
            ("//api///x//", "/api/x/"),
            ("/%2fapi", "/api"),
            ("/api;v=1/x", "/api/x"),
            ("/api%3bv=1/x", "/api/x"),
            ("/api;a;b/x;c", "/api/x"),
            ("/a/;x/b", "/a/b"),
            ("/a/;x", "/a/"),
            ("/;", "/"),
            ("/a;..;b/c%2Fd/..e/;./f..", "/a/c/d/..e/f.."),
            // Decoded once.
            ("/%2561pi", "/%61pi"),
            ("/%252e%252e/x", "/%2e%2e/x"),
            ("/%25", "/%"),
            ("/%%36%31", "/%61"),
            // Not escapes.
            ("/%zz", "/%zz"),
            ("/%", "/%"),
            ("/%6", "/%6"),
            ("/%+6/x", "/%+6/x"),
            ("/%é/x", "/%é/x"),
            // Text, and bytes that are not.
            ("/caf%C3%a9", "/café"),
            ("/caf\u{e9}", "/caf\u{e9}"),
            ("/caf%e9", "/caf\u{10ffe9}"),
            ("/%c0%af", "/\u{10ffc0}\u{10ffaf}"),
            ("/%3f%23%20%2a", "/?# *"),
        ] {
            let path = RequestPath::read(raw).unwrap();
            assert_eq!((path.raw(), path.normal()), (raw, normal));
            assert_eq!(path.other().is_some(), raw != normal, "{raw}");
        }
    }

    #[test]
    fn star_and_empty_targets_count_as_paths() {
        assert_eq!(RequestPath::read("*"), Ok(RequestPath::as_given("/*")));
        assert_eq!(RequestPath::read(""), Ok(RequestPath::as_given("/")));
        for target in ["**", "x", "a:80", "\\api", "%2fapi", ";/api"] {
            assert_eq!(RequestPath::read(target), Err(PathError::NO_PATH));
        }
    }

    #[test]
    fn paths_with_yet_other_readings_are_rejected() {
        for path in [
            "/.",
            "/..",
            "/./x",
            "/a/../x",
            "/a/..",
            "/%2e%2e/x",
            "/.%2E/x",
            "/%2e",
            "/..;/x",
            "/.;x",
            "/..;a/x",
            "/..%3ba/x",
            "/a%2f../x",
            "/a%5C..%5cx",
            "/a\\..\\x",
            "/a/..\\x",
            "/a%2f%2e",
            "//..//x",
            "/x;a/../y",
        ] {
            assert_eq!(RequestPath::read(path), Err(PathError::DOTS), "{path}");
        }
        for path in ["/a%00", "/a;%00/x", "/%00"] {
            assert_eq!(RequestPath::read(path), Err(PathError::NUL), "{path}");
        }
        for path in ["/api;%2fy/x", "/api;a%5Cy/x", "/api;\\y", "/a%3bx%2fy"] {
            let refused = Err(PathError::HIDDEN_SLASH);
            assert_eq!(RequestPath::read(path), refused, "{path}");
        }
    }

    #[test]
    fn one_form_or_both() {
        let path = RequestPath::read("/%61").unwrap();
        assert!(path.either(|it| it == "/a") && path.either(|it| it == "/%61"));
        assert!(!path.both(|it| it == "/a") && path.both(|it| it.starts_with('/')));
        let plain = RequestPath::read("/a").unwrap();
        assert!(plain.either(|it| it == "/a") && plain.both(|it| it == "/a"));
    }
}
