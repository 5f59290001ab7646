//! HTTP/1.1 read as the strictest peer would read it.
//!
//! Whatever two parsers could read in two ways is an error here: what passes can
//! be read in one way only. So it judges what a proxy sends, and takes nothing
//! on trust.

mod answer;
mod body;
mod head;
mod request;

pub use answer::WireAnswer;
pub use request::WireRequest;

/// What became of bytes that should be a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<T> {
    /// A whole message, and how many bytes it took.
    Whole(T, usize),
    /// Good so far, but not all of it.
    Part,
}

/// What is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguous(pub String);

impl std::fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names in lower case, and values, byte by byte as characters.
pub type Headers = Vec<(String, String)>;

/// The values of the headers of a name, which is in lower case.
pub(crate) fn values<'a>(headers: &'a Headers, name: &str) -> Vec<&'a str> {
    let same = headers.iter().filter(|(known, _)| known == name);
    same.map(|(_, value)| value.as_str()).collect()
}

fn bad<T>(what: impl Into<String>) -> Result<T, Ambiguous> {
    Err(Ambiguous(what.into()))
}
