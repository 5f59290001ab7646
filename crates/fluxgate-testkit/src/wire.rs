//! A strict HTTP/1.1 parser.
//!
//! A message that two parsers could interpret differently is an error here. So tests can
//! verify that a proxy sends no ambiguous messages.

mod answer;
mod body;
mod head;
mod request;

pub use answer::WireAnswer;
pub use request::WireRequest;

/// The result of parsing a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<T> {
    /// A complete message and its length in bytes.
    Whole(T, usize),
    /// The beginning of a message.
    Part,
}

/// Why a message is invalid or ambiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguous(pub String);

impl std::fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names in lower case, with their values. Each byte becomes a character.
pub type Headers = Vec<(String, String)>;

/// Returns the values of a header, whose name is in lower case.
pub(crate) fn values<'a>(headers: &'a Headers, name: &str) -> Vec<&'a str> {
    let matching = headers.iter().filter(|(other, _)| other == name);
    matching.map(|(_, value)| value.as_str()).collect()
}

fn bad<T>(what: impl Into<String>) -> Result<T, Ambiguous> {
    Err(Ambiguous(what.into()))
}
