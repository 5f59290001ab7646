//! What is read from an answer or from an event of a stream.

use crate::reader::{JsonFault, Kind, Reader};
use crate::seen::Seen;
use crate::usage::ReportedUsage;

/// What a part of an answer says, or all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) usage: ReportedUsage,
    /// New text.
    pub(crate) seen: Seen,
    /// All text so far, which repeats that of earlier events.
    pub(crate) repeated: Seen,
    /// A part of the text that is complete, and repeats that of earlier events.
    pub(crate) done: Seen,
    /// Whether this is the event that only `include_usage` brings: usage, and a list of
    /// choices without any.
    pub(crate) is_usage_only: bool,
    /// Whether this is the event that ends a stream, with its usage.
    pub(crate) is_last: bool,
}

impl Facts {
    /// Adds those of another object.
    pub(crate) fn add(&mut self, other: Self) {
        self.usage.merge(other.usage);
        self.seen.add(other.seen);
        self.repeated.add(other.repeated);
        self.done.add(other.done);
        self.is_last |= other.is_last;
    }
}

/// What the model wrote into a part.
const PART: [&str; 5] = ["text", "refusal", "transcript", "thinking", "summary"];

/// Returns the length of a text. Some servers send it as a list of parts, or as an object
/// whose JSON is what the model wrote. Null and an empty object have none.
pub(crate) fn text_len(reader: &mut Reader<'_>) -> Result<u64, JsonFault> {
    let mut len = 0;
    match reader.kind()? {
        Kind::String => len = reader.string()?.len(),
        Kind::Object => match reader.raw()? {
            b"{}" => (),
            raw => len = raw.len() as u64,
        },
        Kind::Array => {
            let mut parts = reader.elements()?;
            while parts.next(reader)? {
                len += match reader.kind()? {
                    Kind::String => reader.string()?.len(),
                    _ => members_len(reader, &PART)?,
                };
            }
        }
        Kind::Number | Kind::Boolean | Kind::Null => reader.skip()?,
    }
    Ok(len)
}

/// Returns the length of the texts in the named members of an object.
pub(crate) fn members_len(reader: &mut Reader<'_>, names: &[&str]) -> Result<u64, JsonFault> {
    let mut len = 0;
    let Some(mut members) = reader.members_if_object()? else {
        return Ok(0);
    };
    while let Some(name) = members.next(reader)? {
        if names.iter().any(|it| name.is(it)) {
            len += text_len(reader)?;
        } else {
            reader.skip()?;
        }
    }
    Ok(len)
}
