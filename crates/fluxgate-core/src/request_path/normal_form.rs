//! The normal form of a path.

use std::borrow::Cow;

/// Why a path is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathError(&'static str);

impl PathError {
    pub(super) const NO_PATH: Self = Self("the target is not a path");
    pub(super) const DOTS: Self = Self("the path has `.` or `..` in it");
    pub(super) const CONTROL: Self = Self("the path has a control character in it");
    pub(super) const NOT_TEXT: Self = Self("the path is not UTF-8 when its escapes are decoded");
    pub(super) const HIDDEN_SLASH: Self =
        Self("the path has an escaped slash or a backslash behind a `;`");

    /// Returns the reason, as it is sent to a client.
    pub const fn reason(self) -> &'static str {
        self.0
    }
}

/// Returns a path without its slash at the end. `/` stays.
pub(super) fn without_slash(path: &str) -> &str {
    let stripped = path.strip_suffix('/').filter(|path| !path.is_empty());
    stripped.unwrap_or(path)
}

/// Returns what servers that parse `//host/x` as a URL take for the path. Some of them read `\`
/// as `/`.
pub(super) fn behind_host(path: &str) -> Option<&str> {
    let is_slash = |it: char| matches!(it, '/' | '\\');
    let rest = path.strip_prefix('/')?.strip_prefix(is_slash)?;
    Some(rest.find(is_slash).map_or("/", |at| &rest[at..]))
}

pub(super) fn normal_form<'a>(path: &str) -> Result<Cow<'a, str>, PathError> {
    let normal = String::from_utf8(normalize(path.as_bytes())?);
    normal.map(Cow::Owned).map_err(|_| PathError::NOT_TEXT)
}

/// Returns whether all servers read a path in the same way.
pub(super) fn is_plain(path: &[u8]) -> Result<bool, PathError> {
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
