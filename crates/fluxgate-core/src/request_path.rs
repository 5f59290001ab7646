//! The path of a request, in the forms in which servers read it.

use std::borrow::Cow;

/// The path of a request in its raw form and its normal form.
///
/// Servers disagree about `%61`, `%2f`, `//`, `\`, `;x` and a slash at the end: one serves
/// `/%61pi//x;v=1/` as it is, another serves `/api/x`. Rules match if either form does. In the
/// normal form every percent escape is decoded once, `\` is `/`, each segment is cut at its
/// first `;`, repeated slashes are merged, and a slash at the end is dropped, in this order. An
/// invalid escape (`%zz`) stays.
///
/// ```
/// use fluxgate_core::path::RequestPath;
///
/// # fn main() -> Result<(), fluxgate_core::path::PathError> {
/// let path = RequestPath::read("/%61pi//x;v=1/")?;
/// assert_eq!((path.raw(), path.normal()), ("/%61pi//x;v=1/", "/api/x"));
/// assert!(RequestPath::read("/api/%2e%2e/x").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPath<'a> {
    raw: Cow<'a, str>,
    /// Boxed, because most paths have but one form.
    others: Option<Box<OtherForms<'a>>>,
    /// Whether a slash at the end belongs to the normal form: the path is used as it is.
    keeps_slash: bool,
    /// Whether patterns are compared without ASCII case. Then all forms but the raw one are in
    /// lower case.
    ignores_case: bool,
}

/// The forms of a path that differ from the raw one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OtherForms<'a> {
    /// The raw form in lower case, if case is ignored and it has capitals.
    lower: Option<Cow<'a, str>>,
    /// The normal form with its slash at the end, if that differs from the form above.
    with_slash: Option<Cow<'a, str>>,
    /// The normal form, with its slash at the end, of what is behind the first segment, if the
    /// path begins with two slashes: servers that parse it as a URL take that segment for a host.
    behind_host: Option<Cow<'a, str>>,
}

impl<'a> RequestPath<'a> {
    /// Uses a path as it is, in both forms.
    pub fn as_given(path: impl Into<Cow<'a, str>>) -> Self {
        Self {
            raw: path.into(),
            others: None,
            keeps_slash: true,
            ignores_case: false,
        }
    }

    /// Sets the normal form, in which a slash at the end is dropped where that counts.
    pub fn with_normal(mut self, normal: impl Into<Cow<'a, str>>) -> Self {
        let normal = Some(normal.into()).filter(|normal| *normal != *self.first());
        if normal.is_some() || self.others.is_some() {
            self.others_mut().with_slash = normal;
        }
        self.keeps_slash = false;
        self
    }

    /// Parses the path of a request's target, without the query. The target `*` counts as
    /// `/*`, an empty path as `/`.
    ///
    /// # Errors
    /// If it does not begin with `/`, or if servers could read it in yet other ways:
    /// - with a segment `.` or `..` in either form;
    /// - with a control character, since some servers ignore a line feed at the end;
    /// - with a normal form that is not UTF-8, since some servers drop what is not text;
    /// - with an escaped slash in a parameter, since some servers cut parameters before they
    ///   decode, some after.
    pub fn read(path: &'a str) -> Result<Self, PathError> {
        match path {
            "*" => return Ok(Self::as_given("/*")),
            "" => return Ok(Self::as_given("/")),
            _ if !path.starts_with('/') => return Err(PathError::NO_PATH),
            _ => {}
        }
        let mut read = Self::as_given(path);
        read.keeps_slash = false;
        if is_plain(path.as_bytes())? {
            return Ok(read);
        }
        Ok(read.with_normal(normal_form(path)?).with_host_form())
    }

    /// Reads what is behind a host as well, if the path begins with two slashes.
    pub(crate) fn with_host_form(mut self) -> Self {
        let path = behind_host(&self.raw);
        // Its faults are faults of the whole path.
        let path = path.and_then(|path| normal_form(path).ok());
        if path.is_some() || self.others.is_some() {
            self.others_mut().behind_host = path;
        }
        self
    }

    /// Compares patterns without ASCII case from now on, for servers that route without case.
    pub fn ignoring_case(mut self) -> Self {
        let has_capitals = |text: &str| text.bytes().any(|byte| byte.is_ascii_uppercase());
        if has_capitals(&self.raw) {
            // Without a normal form of its own, the new form is the normal one as well.
            self.others_mut().lower = Some(Cow::Owned(self.raw.to_ascii_lowercase()));
        }
        if let Some(others) = &mut self.others {
            for form in [&mut others.with_slash, &mut others.behind_host] {
                if let Some(form) = form
                    && has_capitals(form)
                {
                    form.to_mut().make_ascii_lowercase();
                }
            }
        }
        self.ignores_case = true;
        self
    }

    /// Returns whether patterns are compared without ASCII case.
    pub fn ignores_case(&self) -> bool {
        self.ignores_case
    }

    /// Returns the path as it was sent.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// Returns the normal form, in lower case if case is ignored.
    pub fn normal(&self) -> &str {
        if self.keeps_slash {
            self.normal_with_slash()
        } else {
            without_slash(self.normal_with_slash())
        }
    }

    /// Returns the normal form with its slash at the end, if it has one. Exceptions and routes
    /// compare this form: where a server distinguishes `/a/` from `/a`, only one of them is
    /// excepted.
    pub fn normal_with_slash(&self) -> &str {
        self.with_slash().unwrap_or(self.first())
    }

    /// Returns the normal form if it differs from the raw one.
    pub fn other(&self) -> Option<&str> {
        Some(self.normal()).filter(|normal| *normal != self.raw)
    }

    /// Returns the forms that rules match: the raw form, and the normal form with its slash at
    /// the end and without. `//host/x` is matched as `/x`, too.
    pub fn forms(&self) -> impl Iterator<Item = &str> {
        let with_slash = self.normal_with_slash();
        let normal = Some(self.normal()).filter(|normal| normal.len() < with_slash.len());
        let forms = [Some(self.first()), self.with_slash(), normal];
        let behind_host = self.behind_host().map(|path| [path, without_slash(path)]);
        forms
            .into_iter()
            .flatten()
            .chain(behind_host.into_iter().flatten())
    }

    /// Returns the forms that exceptions and routes compare, without repetition: the raw form,
    /// and the normal form with its slash at the end.
    pub fn exact_forms(&self) -> impl Iterator<Item = &str> {
        [Some(self.first()), self.with_slash(), self.behind_host()]
            .into_iter()
            .flatten()
    }

    /// Returns whether `holds` returns true for at least one form.
    pub fn either(&self, mut holds: impl FnMut(&str) -> bool) -> bool {
        // The first form nearly always decides.
        holds(self.first()) || self.forms().skip(1).any(holds)
    }

    /// Returns whether `holds` returns true for both forms, the slash at the end kept.
    pub fn both(&self, holds: impl FnMut(&str) -> bool) -> bool {
        self.exact_forms().all(holds)
    }

    /// Returns a path that borrows from this one.
    pub fn borrowed(&self) -> RequestPath<'_> {
        RequestPath {
            raw: Cow::Borrowed(&self.raw),
            others: self.others.as_ref().map(|others| {
                Box::new(OtherForms {
                    lower: others.lower.as_deref().map(Cow::Borrowed),
                    with_slash: others.with_slash.as_deref().map(Cow::Borrowed),
                    behind_host: others.behind_host.as_deref().map(Cow::Borrowed),
                })
            }),
            ..*self
        }
    }

    /// Converts to a path that owns its text.
    pub fn into_owned(self) -> RequestPath<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        RequestPath {
            raw: own(self.raw),
            others: self.others.map(|others| {
                Box::new(OtherForms {
                    lower: others.lower.map(own),
                    with_slash: others.with_slash.map(own),
                    behind_host: others.behind_host.map(own),
                })
            }),
            keeps_slash: self.keeps_slash,
            ignores_case: self.ignores_case,
        }
    }

    /// Returns the raw form, in lower case if case is ignored.
    fn first(&self) -> &str {
        let lower = self.others.as_ref().and_then(|it| it.lower.as_deref());
        lower.unwrap_or(&self.raw)
    }

    fn with_slash(&self) -> Option<&str> {
        self.others.as_ref()?.with_slash.as_deref()
    }

    fn behind_host(&self) -> Option<&str> {
        self.others.as_ref()?.behind_host.as_deref()
    }

    fn others_mut(&mut self) -> &mut OtherForms<'a> {
        self.others.get_or_insert_default()
    }
}

/// Why a path is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathError(&'static str);

impl PathError {
    const NO_PATH: Self = Self("the target is not a path");
    const DOTS: Self = Self("the path has `.` or `..` in it");
    const CONTROL: Self = Self("the path has a control character in it");
    const NOT_TEXT: Self = Self("the path is not UTF-8 when its escapes are decoded");
    const HIDDEN_SLASH: Self = Self("the path has an escaped slash or a backslash behind a `;`");

    /// Returns the reason, as it is sent to a client.
    pub const fn reason(self) -> &'static str {
        self.0
    }
}

/// Returns a path without its slash at the end. `/` stays.
fn without_slash(path: &str) -> &str {
    let stripped = path.strip_suffix('/').filter(|path| !path.is_empty());
    stripped.unwrap_or(path)
}

/// Returns what servers that parse `//host/x` as a URL take for the path. Some of them read `\`
/// as `/`.
fn behind_host(path: &str) -> Option<&str> {
    let is_slash = |it: char| matches!(it, '/' | '\\');
    let rest = path.strip_prefix('/')?.strip_prefix(is_slash)?;
    Some(rest.find(is_slash).map_or("/", |at| &rest[at..]))
}

fn normal_form<'a>(path: &str) -> Result<Cow<'a, str>, PathError> {
    let normal = String::from_utf8(normalize(path.as_bytes())?);
    normal.map(Cow::Owned).map_err(|_| PathError::NOT_TEXT)
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

/// The control character U+007F.
const DELETE: u8 = 0x7f;

const SPECIAL: u8 = 1;
/// A slash; one bit below [`BEHIND`].
const BEFORE: u8 = 2;
/// A slash or a dot.
const BEHIND: u8 = 4;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let special = [b'%', b'\\', b';', DELETE];
    let mut at = 0;
    while at < special.len() {
        classes[special[at] as usize] = SPECIAL;
        at += 1;
    }
    let mut control = 0;
    while control < b' ' {
        classes[control as usize] = SPECIAL;
        control += 1;
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

/// Returns the normal form with its slash at the end. Every separator of the raw form is one here too, so its dot
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
            ..b' ' | DELETE => return Err(PathError::CONTROL),
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
    if segments.any(|segment| matches!(segment, b"." | b"..")) {
        return Err(PathError::DOTS);
    }
    Ok(normal)
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
            ("//api///x//", "/api/x"),
            ("/%2fapi", "/api"),
            ("/api/", "/api"),
            ("/api//", "/api"),
            ("/api%2f", "/api"),
            ("/api\\", "/api"),
            ("//", "/"),
            ("/%2f/", "/"),
            ("/api;v=1/x", "/api/x"),
            ("/api%3bv=1/x", "/api/x"),
            ("/api;a;b/x;c", "/api/x"),
            ("/a/;x/b", "/a/b"),
            ("/a/;x", "/a"),
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
            // Text.
            ("/caf%C3%a9", "/café"),
            ("/caf\u{e9}", "/caf\u{e9}"),
            ("/\u{10ffe9}%20", "/\u{10ffe9} "),
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
        for path in [
            "/a%00",
            "/a;%00/x",
            "/%00",
            "/a%0a",
            "/a%0D/b",
            "/a%09",
            "/a%1f/x",
            "/a%7F",
            "/a\u{7f}",
            "/a\n",
            "/a;x\t",
            "/%0a/../b",
        ] {
            let rejected = Err(PathError::CONTROL);
            assert_eq!(RequestPath::read(path), rejected, "{path:?}");
        }
        for path in [
            "/a%80",
            "/a%ff",
            "/caf%e9",
            "/%c0%af",
            "/%c3;%a9",
            "/a/%ed%a0%80/b",
        ] {
            assert_eq!(RequestPath::read(path), Err(PathError::NOT_TEXT), "{path}");
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

    #[test]
    fn a_slash_at_the_end_is_kept_where_both_forms_must_match() {
        for (raw, forms, both) in [
            ("/a", &["/a"][..], &["/a"][..]),
            ("/a/", &["/a/", "/a"], &["/a/"]),
            ("/%61/", &["/%61/", "/a/", "/a"], &["/%61/", "/a/"]),
            ("/a//", &["/a//", "/a/", "/a"], &["/a//", "/a/"]),
            ("//a", &["//a", "/a", "/", "/"], &["//a", "/a", "/"]),
            ("/a%2f", &["/a%2f", "/a/", "/a"], &["/a%2f", "/a/"]),
            ("/", &["/"], &["/"]),
            ("//", &["//", "/", "/", "/"], &["//", "/", "/"]),
            (
                "//h/a/",
                &["//h/a/", "/h/a/", "/h/a", "/a/", "/a"],
                &["//h/a/", "/h/a/", "/a/"],
            ),
            (
                "/\\h\\%61",
                &["/\\h\\%61", "/h/a", "/a", "/a"],
                &["/\\h\\%61", "/h/a", "/a"],
            ),
        ] {
            let path = RequestPath::read(raw).unwrap();
            assert_eq!(path.forms().collect::<Vec<_>>(), forms);
            let mut compared = Vec::new();
            assert!(path.both(|form| {
                compared.push(form.to_owned());
                true
            }));
            assert_eq!(compared, both);
        }
        let given = RequestPath::as_given("/a/");
        assert_eq!((given.normal(), given.other()), ("/a/", None));
        let named = given.with_normal("/a/");
        assert_eq!((named.normal(), named.other()), ("/a", Some("/a")));
    }

    #[test]
    fn a_path_may_ignore_case() {
        for (raw, forms) in [
            ("/a/B", &["/a/b"][..]),
            ("/a/b", &["/a/b"]),
            ("/%41/B/", &["/%41/b/", "/a/b/", "/a/b"]),
            ("/A/\u{c9}/", &["/a/\u{c9}/", "/a/\u{c9}"]),
        ] {
            let path = RequestPath::read(raw).unwrap().ignoring_case();
            assert!(path.ignores_case());
            assert_eq!(path.raw(), raw);
            assert_eq!(path.forms().collect::<Vec<_>>(), forms);
            assert_eq!(path.borrowed(), path);
            assert_eq!(Some(path.normal()), forms.last().copied());
        }
    }
}
