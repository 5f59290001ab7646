//! Replies and errors in RESP2 and RESP3.

use std::borrow::Cow;

use crate::engine::EngineError;

/// The version of the protocol that a client has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    /// RESP2, with which every connection starts.
    #[default]
    Two,
    /// RESP3.
    Three,
}

impl Version {
    pub(super) const fn number(self) -> u64 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

/// The error of a command. Its text starts with an error code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct CommandError(Cow<'static, str>);

impl CommandError {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Returns the error for too few or too many arguments.
    #[cold]
    pub(super) fn arguments(command: &str) -> Self {
        Self::new(format!(
            "ERR wrong number of arguments for '{command}' command"
        ))
    }
}

impl From<EngineError> for CommandError {
    fn from(error: EngineError) -> Self {
        Self::new(match error {
            EngineError::NotReady => format!("LOADING {error}"),
            EngineError::Call(_) => format!("ERR {error}"),
        })
    }
}

/// A writer of replies.
pub(super) struct Replies<'o> {
    out: &'o mut Vec<u8>,
    version: Version,
}

impl<'o> Replies<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, version: Version) -> Self {
        Self { out, version }
    }

    /// Switches to another version for the following replies.
    pub(super) fn switch_to(&mut self, version: Version) {
        self.version = version;
    }

    /// Returns how many bytes are written but not sent.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn ok(&mut self) {
        self.simple("OK");
    }

    /// Writes a simple string, which has no line breaks.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    pub(super) fn integer(&mut self, number: impl itoa::Integer) {
        self.line(b':', itoa::Buffer::new().format(number).as_bytes());
    }

    pub(super) fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.head(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a verbatim string, for humans to read.
    pub(super) fn verbatim(&mut self, text: &str) {
        match self.version {
            Version::Two => self.bulk(text),
            Version::Three => {
                const KIND: &str = "txt:";
                self.head(b'=', KIND.len() + text.len());
                self.out.extend_from_slice(KIND.as_bytes());
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    pub(super) fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// Writes a null in place of an array.
    pub(super) fn null_array(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"*-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    pub(super) fn bulk_or_null(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.bulk(text),
            None => self.null(),
        }
    }

    pub(super) fn integer_or_null(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.integer(number),
            None => self.null(),
        }
    }

    /// Starts an array of `length` replies.
    pub(super) fn array(&mut self, length: usize) {
        self.head(b'*', length);
    }

    /// Starts a set of `length` replies.
    pub(super) fn set(&mut self, length: usize) {
        match self.version {
            Version::Two => self.head(b'*', length),
            Version::Three => self.head(b'~', length),
        }
    }

    /// Starts a map of `length` names, each with a reply.
    pub(super) fn map(&mut self, length: usize) {
        match self.version {
            Version::Two => self.head(b'*', 2 * length),
            Version::Three => self.head(b'%', length),
        }
    }

    /// Writes an error, which starts with its code. Control characters become spaces,
    /// because it may quote the client.
    pub(super) fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let shown = |char: char| if char.is_control() { ' ' } else { char };
        let mut utf8 = [0; 4];
        for char in text.chars().map(shown) {
            self.out
                .extend_from_slice(char.encode_utf8(&mut utf8).as_bytes());
        }
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn head(&mut self, kind: u8, length: usize) {
        self.line(kind, itoa::Buffer::new().format(length).as_bytes());
    }

    #[inline]
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: Version, write: impl FnOnce(&mut Replies<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Replies::new(&mut out, version));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_protocol_versions_are_written() {
        let write = |replies: &mut Replies<'_>| {
            replies.map(1);
            replies.bulk("a");
            replies.set(1);
            replies.null();
            replies.verbatim("hi");
            replies.integer(-7);
        };
        let two = "*2\r\n$1\r\na\r\n*1\r\n$-1\r\n$2\r\nhi\r\n:-7\r\n";
        assert_eq!(written(Version::Two, write), two);
        let three = "%1\r\n$1\r\na\r\n~1\r\n_\r\n=6\r\ntxt:hi\r\n:-7\r\n";
        assert_eq!(written(Version::Three, write), three);
    }

    #[test]
    fn control_characters_in_errors_become_spaces() {
        let error = written(Version::Two, |replies| replies.error("ERR a\r\nb\x1bc"));
        assert_eq!(error, "-ERR a  b c\r\n");
    }
}
